#!/usr/bin/env python3
"""Items per second and core in batches of cached ids, by GET and by POST."""

import argparse
import json
import os
import random
import sys
import tempfile

sys.path.insert(0, os.path.realpath(os.path.join(os.path.dirname(__file__), "..")))

from lib import cli, data, report, stats, subjects, wrk  # noqa: E402
from lib.http import Connection  # noqa: E402
from lib.process import Failed  # noqa: E402

AIM_ITEMS = 4_000_000


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=100, help="ids per request")
    parser.add_argument("--ids", type=int, default=1_000, help="cached ids to choose from")
    parser.add_argument("--body-bytes", type=int, default=319)
    cli.add_measurement(parser, rounds=8, seconds=4, unit="form and round", seed=False)
    return parser.parse_args()


def requests(form, args):
    """Returns 1,000 batches of different random ids."""
    choose = random.Random(1)
    batches = [choose.sample(range(1, args.ids + 1), args.batch) for _ in range(1_000)]
    if form == "GET":
        return [("GET", f"/products?ids={','.join(map(str, batch))}", "") for batch in batches]
    return [
        ("POST", "/products", json.dumps({"ids": batch}, separators=(",", ":")))
        for batch in batches
    ]


def probe(port, form, args):
    """Fills the cache and checks that one batch is answered from the cache with the rows'
    values.
    """
    connection = Connection(port)
    for number in range(1, args.ids + 1):
        connection.get(f"/products/{number}")
    _, path, body = requests(form, args)[0]
    answer = connection.get(path) if form == "GET" else connection.post(path, body.encode())
    asked = json.loads(requests("POST", args)[0][2])["ids"]
    expected = {
        str(number): json.loads(data.as_json(data.product(number, args.body_bytes)))
        for number in asked
    }
    got = json.loads(answer.body) if answer.status == 200 else None
    if got != {"items": expected, "missing": []}:
        raise Failed(f"the batch by {form} is wrong: {answer.head.decode()}{answer.body[:300]!r}")
    if answer.header("hotrow-cache") != "hit":
        raise Failed(f"the batch by {form} is no hit: {answer.head.decode()}")
    connection.close()


def main():
    args = arguments()
    forms = ["GET", "POST"]
    with tempfile.TemporaryDirectory(prefix="hotrow-bench-") as folder:
        database = os.path.join(folder, "products.db")
        data.generate(database, args.ids, args.body_bytes)
        files = {form: os.path.join(folder, form) for form in forms}
        for form in forms:
            wrk.write_requests(files[form], requests(form, args))
        process = subjects.start_hotrow(folder, database)

        def one_round(number):
            results = {}
            for form in random.Random(number).sample(forms, k=2):
                result = wrk.measured(
                    process, files[form], args.seconds, connections=args.connections
                )
                result["items_per_cpu_second"] = args.batch * 1e6 / result["cpu_us_per_request"]
                result["items_per_second"] = args.batch * result["throughput_rps"]
                results[form] = result
            return results

        try:
            for form in forms:
                probe(process.port, form, args)
            quiet, disturbed = wrk.quiet_rounds(args.rounds, args.foreign_limit, one_round)
        finally:
            process.end()
    rounds = {form: [results[form] for results in quiet] for form in forms}
    rows, verdicts = [], []
    for form in forms:
        per_cpu = [r["items_per_cpu_second"] for r in rounds[form]]
        interval = stats.bootstrap_median(per_cpu)
        latency = [r["latency_us"]["p99"] for r in rounds[form]]
        rows.append(
            [
                form,
                f"{stats.median(per_cpu):,.0f} [{interval[0]:,.0f}–{interval[1]:,.0f}]",
                f"{stats.median([r['items_per_second'] for r in rounds[form]]):,.0f}",
                f"{100 * stats.median([r['cpu_share'] for r in rounds[form]]):.0f} %",
                f"{stats.median(latency):.0f}",
            ]
        )
        verdicts.append(
            report.verdict(
                f"items per second and core, batches of {args.batch} by {form}",
                stats.median(per_cpu),
                AIM_ITEMS,
                at_most=False,
                interval=interval,
            )
        )
    table = report.table(
        [
            "form",
            "items per second of the server's CPU time",
            "items/s seen by wrk",
            "share of its core",
            "p99 µs",
        ],
        rows,
    )
    return report.keep(
        "batch",
        {"settings": vars(args), "rounds": rounds, "disturbed_rounds": disturbed},
        table,
        verdicts,
        args.runs,
    )


if __name__ == "__main__":
    cli.run(main)
