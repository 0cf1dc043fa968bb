#!/usr/bin/env python3
"""CPU time per cached read by the key, and by an alias (another unique value), interleaved.

The key is asked for twice: in a collection with an alias, whose records keep the ends of their
members, and in one without.
"""

import argparse
import os
import random
import sqlite3
import sys
import tempfile

sys.path.insert(0, os.path.realpath(os.path.join(os.path.dirname(__file__), "..")))

from lib import cli, data, report, stats, subjects, wrk  # noqa: E402
from lib.http import Connection  # noqa: E402
from lib.process import Failed  # noqa: E402

AIM_ALIAS, AIM_KEY = 1.15, 1.02
IDS = 1_000
FORMS = ["alias", "key", "key without an alias"]
ALIAS = '[collections.products.by.sku]\ncolumns = ["sku"]\n'
CPU = "cpu_us_per_request"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--body-bytes", type=int, default=319)
    cli.add_measurement(parser, rounds=9, seconds=4, unit="form and round")
    return parser.parse_args()


def path_of(form, number):
    return f"/products/by/sku/SKU-{number:08d}" if form == "alias" else f"/products/{number}"


def fill(port, form):
    """Fills the cache, and checks that each id is a hit with the record's body."""
    connection = Connection(port)
    for number in range(1, IDS + 1):
        expected = connection.get(f"/products/{number}").body
        answers = [connection.get(path_of(form, number)) for _ in range(2)]
        if answers[1].header("hotrow-cache") != "hit" or answers[1].body != expected:
            raise Failed(f"{path_of(form, number)}: {answers[1].head.decode()}")
    connection.close()


def start(folder, database, args):
    """Starts a service with an alias and one without; returns the one of each form."""
    data.generate(database, IDS, args.body_bytes)
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE UNIQUE INDEX sku ON products(sku)")
    with_alias = subjects.start_hotrow(folder, database, name="alias", more=ALIAS)
    without = subjects.start_hotrow(folder, database, name="plain")
    return dict(zip(FORMS, (with_alias, with_alias, without), strict=True))


def measure(running, files, args):
    order = random.Random(args.seed)
    for process in set(running.values()):
        process.pause()

    def one_round(_):
        results = {}
        for form in order.sample(FORMS, k=len(FORMS)):
            process = running[form]
            process.resume()
            try:
                results[form] = wrk.measured(
                    process, files[form], args.seconds, connections=args.connections
                )
            finally:
                process.pause()
        return results

    return wrk.quiet_rounds(args.rounds, args.foreign_limit, one_round)


def main():
    args = arguments()
    with tempfile.TemporaryDirectory(prefix="hotrow-bench-") as folder:
        files = {form: os.path.join(folder, f"requests-{i}") for i, form in enumerate(FORMS)}
        numbers = list(range(1, IDS + 1))
        random.Random(args.seed).shuffle(numbers)
        for form, file in files.items():
            wrk.write_requests(file, [("GET", path_of(form, number), "") for number in numbers])
        running = start(folder, os.path.join(folder, "products.db"), args)
        try:
            for form in FORMS:
                fill(running[form].port, form)
            quiet, disturbed = measure(running, files, args)
        finally:
            for process in set(running.values()):
                process.end()
    cpu = {form: [results[form][CPU] for results in quiet] for form in FORMS}
    rows, verdicts = [], []
    for form in FORMS:
        low, high = stats.bootstrap_median(cpu[form])
        rows.append([form, f"{stats.median(cpu[form]):.2f} [{low:.2f}–{high:.2f}]"])
    for one, other, aim in [("alias", "key", AIM_ALIAS), ("key", FORMS[2], AIM_KEY)]:
        ratio = stats.ratio(cpu[one], cpu[other])
        interval = (ratio["low"], ratio["high"])
        name = f"CPU per cached read, {one} / {other}"
        verdicts.append(report.verdict(name, ratio["median"], aim, interval=interval))
    table = report.table(["lookup by", "CPU µs per request"], rows)
    results = {"settings": vars(args), "rounds": quiet, "disturbed_rounds": disturbed}
    return report.keep("alias", results, table, verdicts, args.runs)


if __name__ == "__main__":
    cli.run(main)
