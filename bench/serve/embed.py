#!/usr/bin/env python3
"""CPU time per cached read of a record with embedded rows, and of a plain one of the same size.

Both are entries like any other, so the ratio should be 1. Interleaved, over SQLite.
"""

import argparse
import json
import os
import random
import sqlite3
import sys
import tempfile

sys.path.insert(0, os.path.realpath(os.path.join(os.path.dirname(__file__), "..")))

from lib import cli, data, report, stats, subjects, wrk  # noqa: E402
from lib.http import Connection  # noqa: E402
from lib.process import Failed  # noqa: E402

AIM = 1.02
IDS = 1_000
FORMS = ["embedded", "plain"]
EMBED = (
    '[collections.products.embed.prices]\non = "product_id"\ncolumns = ["region", "amount"]\n'
)
CPU = "cpu_us_per_request"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--body-bytes", type=int, default=319, help="without the children")
    parser.add_argument("--children", type=int, default=5)
    cli.add_measurement(parser, rounds=9, seconds=4, unit="form and round")
    return parser.parse_args()


def child(number):
    """Returns region and amount of a child, whose JSON always has the same size."""
    return f"r{number:03d}", 100_000 + number


def member_bytes(children):
    rows = [dict(zip(("region", "amount"), child(n))) for n in range(children)]
    return len(',"prices":') + len(json.dumps(rows, separators=(",", ":")))


def path_of(number):
    return f"/products/{number}"


def fill(port, size):
    """Fills the cache, and checks that each id is a hit of that size."""
    connection = Connection(port)
    for number in range(1, IDS + 1):
        answers = [connection.get(path_of(number)) for _ in range(2)]
        if answers[1].header("hotrow-cache") != "hit" or len(answers[1].body) != size:
            raise Failed(f"{path_of(number)}: {answers[1].head.decode()}")
    connection.close()


def start(folder, size, args):
    """Starts a service per form."""
    databases = {form: os.path.join(folder, f"{form}.db") for form in FORMS}
    data.generate(databases["embedded"], IDS, args.body_bytes)
    data.generate(databases["plain"], IDS, size)
    with sqlite3.connect(databases["embedded"]) as connection:
        connection.execute(
            "CREATE TABLE prices (id INTEGER PRIMARY KEY, product_id INTEGER, region TEXT,"
            " amount INTEGER)"
        )
        connection.execute("CREATE INDEX prices_product ON prices(product_id)")
        rows = ((p, *child(n)) for p in range(1, IDS + 1) for n in range(args.children))
        connection.executemany(
            "INSERT INTO prices (product_id, region, amount) VALUES (?,?,?)", rows
        )
    return {
        form: subjects.start_hotrow(
            folder, databases[form], name=form, more=EMBED if form == "embedded" else ""
        )
        for form in FORMS
    }


def measure(running, file, args):
    order = random.Random(args.seed)
    for process in running.values():
        process.pause()

    def one_round(_):
        results = {}
        for form in order.sample(FORMS, k=len(FORMS)):
            process = running[form]
            process.resume()
            try:
                results[form] = wrk.measured(
                    process, file, args.seconds, connections=args.connections
                )
            finally:
                process.pause()
        return results

    return wrk.quiet_rounds(args.rounds, args.foreign_limit, one_round)


def main():
    args = arguments()
    size = args.body_bytes + member_bytes(args.children)
    with tempfile.TemporaryDirectory(prefix="hotrow-bench-") as folder:
        file = os.path.join(folder, "requests")
        numbers = list(range(1, IDS + 1))
        random.Random(args.seed).shuffle(numbers)
        wrk.write_requests(file, [("GET", path_of(number), "") for number in numbers])
        running = start(folder, size, args)
        try:
            for form in FORMS:
                fill(running[form].port, size)
            quiet, disturbed = measure(running, file, args)
        finally:
            for process in running.values():
                process.end()
    cpu = {form: [results[form][CPU] for results in quiet] for form in FORMS}
    rows = []
    for form in FORMS:
        low, high = stats.bootstrap_median(cpu[form])
        rows.append([form, f"{stats.median(cpu[form]):.2f} [{low:.2f}–{high:.2f}]"])
    ratio = stats.ratio(cpu["embedded"], cpu["plain"])
    name = f"CPU per cached read of {size} bytes, embedded / plain"
    verdict = report.verdict(name, ratio["median"], AIM, interval=(ratio["low"], ratio["high"]))
    table = report.table(["record", "CPU µs per request"], rows)
    results = {"settings": vars(args), "rounds": quiet, "disturbed_rounds": disturbed}
    return report.keep("embed", results, table, [verdict], args.runs)


if __name__ == "__main__":
    cli.run(main)
