#!/usr/bin/env python3
"""Cold reads over PostgreSQL: hotrow, whose misses share queries, and a Go service with pgx and one
query per request.

Ids are uniformly random out of many more than hotrow's cache holds (capacity 1 MiB; the share of
hits is measured and saved), so nearly every request is a miss. Both services, PostgreSQL and wrk
share both cores. In each round the services alternate in random order, with the other one stopped.
CPU time of the database is that of all its processes.
"""

import argparse
import os
import random
import re
import sys
import tempfile

sys.path.insert(0, os.path.realpath(os.path.join(os.path.dirname(__file__), "..")))

from lib import cli, data, postgres, report, stats, subjects, wrk  # noqa: E402
from lib.http import Connection  # noqa: E402
from lib.process import Failed  # noqa: E402

AIM_THROUGHPUT = 2.0
AIM_DATABASE_CPU = 1.0
HIT_SHARE_MAX = 0.02
ALL_CORES = "0-1"


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=600_000)
    parser.add_argument("--ids", type=int, default=500_000, help="different requests, in turn")
    parser.add_argument(
        "--pool", type=int, default=16, help="connections of the Go service to the database"
    )
    parser.add_argument(
        "--reads-in-flight", type=int, default=4, help="queries that hotrow sends at once"
    )
    parser.add_argument("--body-bytes", type=int, default=319)
    cli.add_measurement(parser, rounds=10, seconds=5, unit="subject and round")
    return parser.parse_args()


def probe(name, port, args):
    """Checks that a subject answers with the database's rows."""
    connection = Connection(port)
    for number in (1, args.rows // 2, args.rows):
        answer = connection.get(f"/products/{number}")
        expected = data.as_json(data.product(number, args.body_bytes))
        if answer.status != 200 or answer.body != expected:
            raise Failed(
                f"{name} answers /products/{number} with {answer.head!r} {answer.body[:300]!r}"
            )
    connection.close()


def write_requests(path, chosen, args):
    wrk.write_requests(
        path, [("GET", f"/products/{chosen.randint(1, args.rows)}", "") for _ in range(args.ids)]
    )
    return path


def counters(hotrow):
    """Returns hotrow's counters: lookups that were hits, all lookups, queries."""
    connection = Connection(hotrow.admin_port)
    text = connection.get("/metrics").body.decode()
    connection.close()

    def total(name, label=""):
        return sum(
            float(value)
            for value in re.findall(rf"^{name}\{{[^}}]*{label}[^}}]*\}} (\S+)$", text, re.MULTILINE)
        )

    return {
        "hits": total("hotrow_lookups_total", 'outcome="hit"'),
        "lookups": total("hotrow_lookups_total"),
        "queries": total("hotrow_queries_total"),
    }


def measure(running, server, requests, warm_up, args):
    order = random.Random(args.seed)

    def one_round(_):
        results = {}
        names = list(running)
        order.shuffle(names)
        for name in names:
            running[name].resume()
            results[name] = wrk.measured(
                running[name],
                requests,
                args.seconds,
                connections=args.connections,
                core=ALL_CORES,
                beside=server,
                warm_up_file=warm_up,
            )
            running[name].pause()
        return results

    for process in running.values():
        process.pause()
    try:
        return wrk.quiet_rounds(args.rounds, args.foreign_limit, one_round)
    finally:
        for process in running.values():
            process.resume()


def main():
    args = arguments()
    running = {}
    with tempfile.TemporaryDirectory(prefix="hotrow-bench-") as folder:
        server = postgres.Server(folder, core=ALL_CORES)
        try:
            server.load_products(args.rows, args.body_bytes)
            chosen = random.Random(args.seed)
            requests, warm_up = (
                write_requests(os.path.join(folder, name), chosen, args)
                for name in ("requests", "warm-up")
            )
            running["hotrow"] = subjects.start_hotrow_over(
                folder,
                server.url,
                capacity="1MiB",
                core=ALL_CORES,
                workers=2,
                source=f"reads_in_flight = {args.reads_in_flight}",
            )
            running["pgx"] = subjects.start_pgx(folder, server.url, args.pool, core=ALL_CORES)
            for name, process in running.items():
                probe(name, process.port, args)
            before = counters(running["hotrow"])
            quiet, disturbed = measure(running, server, requests, warm_up, args)
            after = counters(running["hotrow"])
        finally:
            for process in running.values():
                process.end()
            server.end()
    counted = {name: after[name] - before[name] for name in after}
    hit_share = counted["hits"] / counted["lookups"]
    if hit_share > HIT_SHARE_MAX:
        raise Failed(
            f"{100 * hit_share:.1f} % of hotrow's reads were hits: these were no cold reads; raise "
            f"--rows"
        )

    def column(name, what):
        return [one[name][what] for one in quiet]

    throughput = stats.ratio(column("hotrow", "throughput_rps"), column("pgx", "throughput_rps"))
    database = stats.ratio(
        column("hotrow", "beside_cpu_us_per_request"), column("pgx", "beside_cpu_us_per_request")
    )
    rows = [
        [
            name,
            *(
                f"{stats.median(column(name, what)):,.1f}"
                for what in ("throughput_rps", "beside_cpu_us_per_request", "cpu_us_per_request")
            ),
        ]
        + [f"{stats.median([one[name]['latency_us']['p99'] for one in quiet]) / 1e3:,.2f}"]
        for name in running
    ]
    table = report.table(
        [
            "subject",
            "requests/s",
            "CPU of the database, µs per request",
            "own CPU, µs per request",
            "p99, ms",
        ],
        rows,
    )
    table += (
        f"\n\nMedians of {len(quiet)} rounds ({len(disturbed)} more were disturbed). "
        f"{100 * hit_share:.2f} % of hotrow's reads "
        f"were hits; it sent {counted['lookups'] / counted['queries']:.1f} keys per query."
    )
    verdicts = [
        report.verdict(
            "requests per second, hotrow over pgx",
            throughput["median"],
            AIM_THROUGHPUT,
            at_most=False,
            interval=(throughput["low"], throughput["high"]),
        ),
        report.verdict(
            "CPU time of the database per request, hotrow over pgx",
            database["median"],
            AIM_DATABASE_CPU,
            interval=(database["low"], database["high"]),
        ),
    ]
    results = {
        "settings": {**vars(args), "server": server.settings},
        "rounds": quiet,
        "disturbed_rounds": disturbed,
        "hotrow": {**counted, "hit_share": hit_share},
        "ratios": {"throughput": throughput, "database_cpu": database},
    }
    return report.keep("cold", results, table, verdicts, args.runs)


if __name__ == "__main__":
    cli.run(main)
