#!/usr/bin/env python3
"""Overload: goodput, hits beside it and recovery at 0.5 to 10 times the database's capacity, with
and without protection.

PostgreSQL sleeps for each returned row (a type whose cast to JSON sleeps), in each session
separately: a database that is slow without CPU time. Ids are uniformly random out of far more than
the cache holds, in an open loop; each client waits a second and states that (`Hotrow-Deadline-Ms`).
Goodput is answers with status 200 within that second. Beside it, hits at a fixed rate. After each
load, cold requests one after another show when the service has recovered. "Without" is a fixed
limit, first come first served, no header, no shedding, no breaker.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.realpath(os.path.join(os.path.dirname(__file__), "..")))

from lib import cli, plot, postgres, report, stats, subjects  # noqa: E402
from lib.http import Connection  # noqa: E402
from lib.process import Failed, free_port  # noqa: E402

GOODPUT_AT_MOST_LOAD, HITS_P99_MS, RECOVERY_S, GENERATOR_SHARE = 0.9, 5.0, 2.0, 0.2
HIT_SHARE_MAX = 0.05
CLIENT_DEADLINE_MS = 1_000
HITS_RATE, HITS_IDS, HITS_CONNECTIONS = 500, 16, 4
PROBES_BEFORE, PROBES_IN_A_ROW, PROBE_LIMIT_S = 30, 5, 30
PROTECTED = {
    "with": "",
    "without": '[limits.concurrency]\nkind = "fixed"\nqueue = "fifo"\ndeadline_header = false\n',
}
# Parts that a version may not support: each is omitted if `hotrow check` refuses it.
OTHER_PROTECTION_OFF = ["[limits.shed]\nenabled = false\n", "[limits.breaker]\nenabled = false\n"]

SCHEMA = """
CREATE TYPE pace AS ENUM ('slow', 'quick');
CREATE FUNCTION pace_json(pace) RETURNS json LANGUAGE plpgsql VOLATILE AS
  $$ BEGIN IF $1 = 'slow' THEN PERFORM pg_sleep({delay_s}); END IF; RETURN '"done"'; END $$;
CREATE CAST (pace AS json) WITH FUNCTION pace_json(pace);
-- hotrow reads no binary form of a point, so it requests the column by to_json, with the cast.
CREATE TYPE paced AS (pace pace, odd point);
CREATE TABLE products (id integer PRIMARY KEY, name text NOT NULL, paced paced);
INSERT INTO products
  SELECT i, 'product ' || i, ROW('slow'::pace, point(1, 2))::paced
  FROM generate_series(1, {rows}) AS i;
CREATE TABLE hot (id integer PRIMARY KEY, name text NOT NULL);
INSERT INTO hot SELECT i, repeat('x', 200) FROM generate_series(1, {hits_ids}) AS i;
VACUUM (ANALYZE, FREEZE) products
"""
CONFIG = """\
[listen]
data = "127.0.0.1:{port}"
admin = "127.0.0.1:{admin}"
workers = 2
[source]
url = "{url}"
reads_in_flight = {reads_in_flight}
[cache]
capacity = "{capacity}"
[limits]
checks_per_s = 0
{more}
[collections.products]
[collections.hot]
"""


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--factors", default="0.5,1,2,5,10", help="loads as multiples of the capacity"
    )
    parser.add_argument("--seconds", type=int, default=20, help="of each load")
    parser.add_argument("--rows", type=int, default=600_000)
    parser.add_argument("--capacity", default="4MiB", help="of the cache")
    parser.add_argument("--delay-ms", type=float, default=18.0, help="per row")
    parser.add_argument("--reads-in-flight", type=int, default=4)
    parser.add_argument("--variants", type=cli.some_of(PROTECTED), default=",".join(PROTECTED))
    cli.add_runs(parser)
    args = parser.parse_args()
    args.factors = [float(factor) for factor in args.factors.split(",")]
    return args


def accepted(folder, binary, config):
    path = os.path.join(folder, "check.toml")
    with open(path, "w") as file:
        file.write(config)
    return subprocess.run([binary, "check", "--config", path], capture_output=True).returncode != 2


class Service:
    """A hotrow over the slow database."""

    def __init__(self, folder, server, variant, args):
        binary = subjects.hotrow_binary()
        if binary is None:
            raise Failed(
                "there is no hotrow to measure: run `cargo build --release`, or set HOTROW to the "
                "binary"
            )
        port, admin = free_port(), free_port()

        def config(more):
            return CONFIG.format(
                port=port,
                admin=admin,
                url=server.url,
                reads_in_flight=args.reads_in_flight,
                capacity=args.capacity,
                more=more,
            )

        more = PROTECTED[variant]
        if variant == "without":
            more += "".join(
                part for part in OTHER_PROTECTION_OFF if accepted(folder, binary, config(part))
            )
        self.settings, self.binary = config(more), binary
        self.process = subjects.start_configured(
            folder, config(more), port, admin, f"hotrow-{variant}"
        )
        self.url = f"http://127.0.0.1:{port}"
        self.loads = 0

    def metrics(self):
        connection = Connection(self.process.admin_port)
        text = connection.get("/metrics").body.decode()
        connection.close()
        return text

    def total(self, name, label=""):
        pattern = rf"^{name}(?:\{{[^}}]*{label}[^}}]*\}})? (\S+)$"
        return sum(float(value) for value in re.findall(pattern, self.metrics(), re.MULTILINE))

    def load(self, path, ids, seconds, *more):
        """Starts `hotrow load`; the id range is of the collection in `path`. No two runs draw the
        same ids.
        """
        self.loads += 1
        return subprocess.Popen(
            [
                self.binary,
                "load",
                "--json",
                "--quiet",
                "-t",
                "1",
                "-d",
                f"{seconds}s",
                "--ids",
                f"1..{ids}",
                "--distribution",
                "uniform",
                "--seed",
                str(self.loads),
                *more,
                f"{self.url}/{path}/{{id}}",
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def end(self):
        self.process.end()


def load_report(child):
    out, err = child.communicate()
    if child.returncode != 0 or not out:
        raise Failed(f"{' '.join(child.args)} failed ({child.returncode}):\n{err[-2000:]}")
    return json.loads(out)


def milliseconds(value):
    """Converts a latency: a number, or a text such as ">1000000" if it lies among the timed-out
    requests.
    """
    return None if value is None else float(str(value).lstrip(">")) / 1e3


def capacity_rps(service, args):
    """Returns the database's capacity with merging, by a closed loop that keeps every session
    busy.
    """
    report_of = load_report(
        service.load(
            "products", args.rows, max(5, args.seconds // 2), "-c", str(16 * args.reads_in_flight)
        )
    )
    return report_of["requests"]["ok"] / report_of["duration_s"]


def probe_ms(connection, ids):
    """Returns the latency of one cold request, None if it was refused."""
    begun = time.monotonic()
    status = connection.get(f"/products/{next(ids)}").status
    return (time.monotonic() - begun) * 1e3 if status == 200 else None


def recovery_s(service, ids, before_ms):
    """Returns the time until several cold requests in a row take at most 1.5 times as long as
    before.
    """
    begun, in_a_row, first = time.monotonic(), 0, None
    connection = Connection(service.process.port)
    while in_a_row < PROBES_IN_A_ROW:
        at = time.monotonic()
        if at - begun > PROBE_LIMIT_S:
            return None
        took = probe_ms(connection, ids)
        good = took is not None and took <= 1.5 * before_ms
        in_a_row, first = (in_a_row + 1, first if in_a_row else at) if good else (0, None)
        if took is None:
            time.sleep(0.02)
    connection.close()
    return first - begun


def one_load(service, rate, args, ids, before_ms):
    connections = min(15_000, max(64, int(rate * CLIENT_DEADLINE_MS / 1e3 * 1.2)))
    hits = service.load(
        "hot", HITS_IDS, args.seconds, "-c", str(HITS_CONNECTIONS), "--rate", str(HITS_RATE)
    )
    cold = service.load(
        "products",
        args.rows,
        args.seconds,
        "-c",
        str(connections),
        "--rate",
        str(int(rate)),
        "--timeout",
        f"{CLIENT_DEADLINE_MS}ms",
        "-H",
        f"Hotrow-Deadline-Ms: {CLIENT_DEADLINE_MS}",
    )
    cold_report = load_report(cold)
    recovery = recovery_s(service, ids, before_ms)
    hits_report = load_report(hits)
    requests = cold_report["requests"]
    return {
        "offered_rps": requests["scheduled"] / cold_report["duration_s"],
        "goodput_rps": requests["ok"] / cold_report["duration_s"],
        "goodput_over_time_rps": [
            second["ok"] / second["length_s"] for second in cold_report["seconds"]
        ],
        "unsent": requests["unsent"],
        "timeouts": requests["timeouts"],
        "status": cold_report["status"],
        "generator_cpu_share": cold_report["generator"]["cpu_share"],
        "latency_ms": {p: milliseconds(cold_report["answered_us"][p]) for p in ("p50", "p99")},
        "hits_p99_ms": milliseconds(hits_report["answered_us"]["p99"]),
        "hits_errors": hits_report["requests"]["errors"],
        "recovery_s": recovery,
        "query_limit": service.total("hotrow_query_limit"),
    }


def measure(variant, service, capacity, args):
    # Ids of the probes: from the end of the range, each once.
    ids = iter(range(args.rows, 0, -1))
    connection = Connection(service.process.port)
    for number in range(1, HITS_IDS + 1):
        connection.get(f"/hot/{number}")
    before = [probe_ms(connection, ids) for _ in range(PROBES_BEFORE)]
    connection.close()
    if None in before:
        raise Failed("the idle service refuses cold requests")
    before_ms = max(before)
    # A few of them may be hits.
    if stats.median(before) < args.delay_ms:
        raise Failed(
            f"a cold request takes {stats.median(before):.1f} ms: the database does not sleep"
        )
    loads = []
    for factor in args.factors:
        hits, lookups = (
            service.total("hotrow_lookups_total", 'collection="products",outcome="' + kind)
            for kind in ("hit", "")
        )
        one = {"factor": factor, **one_load(service, factor * capacity, args, ids, before_ms)}
        hits = service.total("hotrow_lookups_total", 'collection="products",outcome="hit') - hits
        lookups = service.total("hotrow_lookups_total", 'collection="products",outcome="') - lookups
        one["hit_share"] = hits / lookups
        loads.append(one)
        print(
            f"{variant}, {factor} ×: {one['goodput_rps']:.0f} of {one['offered_rps']:.0f} "
            "per second, hits p99 "
            f"{one['hits_p99_ms']:.2f} ms, recovery {one['recovery_s']} s",
            file=sys.stderr,
        )
    return {
        "before_ms": {"p50": stats.median(before), "max": before_ms},
        "settings": service.settings,
        "loads": loads,
    }


def judge(found):
    with_it = found["with"]["loads"]
    peak = max(one["goodput_rps"] for one in with_it)
    last = with_it[-1]
    recoveries = [one["recovery_s"] for one in with_it]
    return [
        report.verdict(
            f"goodput at {last['factor']:g} × over its peak",
            last["goodput_rps"] / peak,
            GOODPUT_AT_MOST_LOAD,
            at_most=False,
        ),
        report.verdict(
            "p99 of hits, worst of all loads",
            max(one["hits_p99_ms"] for one in with_it),
            HITS_P99_MS,
            "ms",
        ),
        report.verdict(
            "recovery, longest", None if None in recoveries else max(recoveries), RECOVERY_S, "s"
        ),
        report.verdict(
            "the generator's share of a core at the largest load",
            last["generator_cpu_share"],
            GENERATOR_SHARE,
        ),
    ]


def as_markdown(found, capacity):
    rows = []
    for variant, measured in found.items():
        for one in measured["loads"]:
            refused = sum(count for status, count in one["status"].items() if status == "503")
            recovery = (
                "not within 30 s" if one["recovery_s"] is None else f"{one['recovery_s']:.2f}"
            )
            rows.append(
                [
                    variant,
                    f"{one['factor']:g}",
                    f"{one['offered_rps']:,.0f}",
                    f"{one['goodput_rps']:,.0f}",
                    f"{refused:,}",
                    f"{one['timeouts']:,}",
                    f"{one['unsent']:,}",
                    f"{one['hits_p99_ms']:.2f}",
                    recovery,
                    f"{100 * one['generator_cpu_share']:.0f} %",
                ]
            )
    heads = [
        "protection",
        "load",
        "offered/s",
        "goodput/s",
        "503",
        "given up",
        "unsent",
        "p99 of hits, ms",
        "recovery, s",
        "generator's core",
    ]
    return f"Capacity with merging: {capacity:,.0f} rows per second.\n\n" + report.table(
        heads, rows
    )


def main():
    args = arguments()
    with tempfile.TemporaryDirectory(prefix="hotrow-bench-") as folder:
        server = postgres.Server(folder)
        found, capacity = {}, None
        try:
            with postgres.Session(server.port) as session:
                schema = SCHEMA.format(
                    delay_s=args.delay_ms / 1e3, rows=args.rows, hits_ids=HITS_IDS
                )
                for statement in re.split(r";\n(?! *\$)", schema):
                    session.run(statement)
            for variant in args.variants:
                service = Service(folder, server, variant, args)
                try:
                    capacity = capacity or capacity_rps(service, args)
                    found[variant] = measure(variant, service, capacity, args)
                finally:
                    service.end()
        finally:
            server.end()
    shares = [one["hit_share"] for measured in found.values() for one in measured["loads"]]
    if max(shares) > HIT_SHARE_MAX:
        raise Failed(
            f"{100 * max(shares):.1f} % of the reads were hits: these were no cold reads; raise "
            f"--rows"
        )
    lines = {
        f"{variant} protection": [
            (one["offered_rps"], one["goodput_rps"]) for one in measured["loads"]
        ]
        for variant, measured in found.items()
    }
    chart = plot.lines(
        "Goodput over offered load",
        "offered, requests per second",
        "answered in time, per second",
        lines,
    )
    results = {
        "settings": vars(args),
        "server": server.settings,
        "capacity_rps": capacity,
        "variants": found,
    }
    verdicts = judge(found) if "with" in found else []
    return report.keep(
        "overload", results, as_markdown(found, capacity), verdicts, args.runs, {"svg": chart}
    )


if __name__ == "__main__":
    cli.run(main)
