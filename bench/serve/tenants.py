#!/usr/bin/env python3
"""Time of an answer from memory: another tenant's record and a missing one.

Both kinds of ids are in memory. One client asks for them one after the other, in random order, and
measures each exchange; a third kind, its own records, shows that a difference would be seen.
"""

import argparse
import hashlib
import math
import os
import random
import sqlite3
import sys
import tempfile
import time

sys.path.insert(0, os.path.realpath(os.path.join(os.path.dirname(__file__), "..")))

from lib import cli, report, stats, subjects  # noqa: E402
from lib.http import Connection  # noqa: E402
from lib.process import Failed  # noqa: E402

# The two kinds are alike if a test at this level does not tell them apart.
P_MIN = 0.01
IDS = 1_000
KEY = f"hrk_{1:016x}_{'A' * 43}"
MORE = f"""\
[access.roles.reader]
collections = "*"
[access.keys.reader]
id = "{1:016x}"
sha256 = "{hashlib.sha256(KEY.encode()).hexdigest()}"
roles = "reader"
tenant = "own"
[collections.accounts]
tenant = "tenant"
"""
KINDS = ("foreign", "absent", "own")
# All ids have as many digits, and the kinds take turns: a shorter id is parsed sooner, and an older
# row lies elsewhere.
FIRST_ID = 10_000


def id_of(kind, number):
    return FIRST_ID + len(KINDS) * number + KINDS.index(kind)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=100_000, help="of each kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", help="folder for the kept run; '-' keeps nothing")
    return parser.parse_args()


def generate(path):
    """Writes the foreign and the own records; ids between them have none."""
    db = sqlite3.connect(path)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("CREATE TABLE products (id INTEGER PRIMARY KEY)")
    db.execute("CREATE TABLE accounts (id INTEGER PRIMARY KEY, tenant TEXT, text TEXT)")
    text = "x" * 300
    for n in range(IDS):
        for kind, tenant in (("foreign", "other"), ("own", "own")):
            db.execute("INSERT INTO accounts VALUES (?,?,?)", (id_of(kind, n), tenant, text))
    db.commit()
    db.close()


def mann_whitney(a, b):
    """Returns the two-sided p of the Mann-Whitney test, by the normal approximation with its
    correction for ties, and the share of pairs in which a value of `a` is the larger one."""
    both = sorted([(value, 0) for value in a] + [(value, 1) for value in b])
    ranks, ties, at = 0.0, 0.0, 0
    while at < len(both):
        end = at
        while end < len(both) and both[end][0] == both[at][0]:
            end += 1
        count = end - at
        ties += count**3 - count
        ranks += (at + 1 + end) / 2 * sum(1 for _, which in both[at:end] if which == 0)
        at = end
    pairs, total = len(a) * len(b), len(both)
    u = ranks - len(a) * (len(a) + 1) / 2
    variance = pairs / 12 * (total + 1 - ties / (total * (total - 1)))
    z = (u - pairs / 2) / math.sqrt(variance)
    return math.erfc(abs(z) / math.sqrt(2)), u / pairs


def measure(port, requests, seed):
    """Returns the times of the exchanges in nanoseconds, by kind."""
    connection = Connection(port)
    credential = f"X-API-Key: {KEY}\r\n"
    wanted = {"foreign": 404, "absent": 404, "own": 200}

    def ask(kind, number):
        request = f"GET /accounts/{id_of(kind, number)} HTTP/1.1\r\nHost: a\r\n{credential}\r\n"
        request = request.encode()
        began = time.perf_counter_ns()
        answer = connection.exchange(request)
        took = time.perf_counter_ns() - began
        if answer.status != wanted[kind]:
            raise Failed(f"{kind} {number}: {answer.head!r}")
        return took

    for number in range(IDS):
        for kind in KINDS:
            ask(kind, number)
    order = [kind for kind in KINDS for _ in range(requests)]
    generator = random.Random(seed)
    generator.shuffle(order)
    times = {kind: [] for kind in KINDS}
    for kind in order:
        times[kind].append(ask(kind, generator.randrange(IDS)))
    connection.close()
    return times


def main():
    args = arguments()
    with tempfile.TemporaryDirectory(prefix="hotrow-bench-") as folder:
        database = os.path.join(folder, "tenants.db")
        generate(database)
        process = subjects.start_hotrow(folder, database, name="hotrow", more=MORE)
        try:
            times = measure(process.port, args.requests, args.seed)
        finally:
            process.end()
    cases = {}
    for kind in ("foreign", "own"):
        p, larger = mann_whitney(times[kind], times["absent"])
        cases[kind] = {"p": p, "share_slower_than_absent": larger}
    medians = {kind: stats.median(values) for kind, values in times.items()}
    rows = [
        [kind, f"{medians[kind]:,.0f}"]
        + (
            [f"{cases[kind]['p']:.3g}", f"{cases[kind]['share_slower_than_absent']:.4f}"]
            if kind in cases
            else ["", ""]
        )
        for kind in KINDS
    ]
    name = f"p of foreign and absent, {args.requests:,} requests each"
    verdicts = [report.verdict(name, cases["foreign"]["p"], P_MIN, at_most=False)]
    heads = ["kind", "median ns", "p against absent", "share slower than absent"]
    results = {"settings": vars(args), "medians_ns": medians, "cases": cases}
    return report.keep("tenants", results, report.table(heads, rows), verdicts, args.runs)


if __name__ == "__main__":
    cli.run(main)
