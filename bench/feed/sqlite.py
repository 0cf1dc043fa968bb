#!/usr/bin/env python3
"""Measures the time from COMMIT to visible over HTTP with SQLite, at a steady rate of writes by
another process.

lib/freshness.py defines a sample.
"""

import contextlib
import os
import sqlite3
import sys
import tempfile

sys.path.insert(0, os.path.realpath(os.path.join(os.path.dirname(__file__), "..")))

from lib import cli, data, freshness, report, subjects  # noqa: E402


def writer(database):
    db = sqlite3.connect(database, isolation_level=None, timeout=freshness.GIVE_UP_S)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = NORMAL")

    def commit(revision, key):
        db.execute("BEGIN IMMEDIATE")
        db.execute("UPDATE products SET revision = ? WHERE id = ?", (revision, key))
        db.execute("COMMIT")

    return commit


def main():
    parser = freshness.parser(__doc__)
    parser.add_argument("--rate", type=int, default=1_000, help="writes per second")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hotrow-bench-") as folder:
        database = os.path.join(folder, "products.db")
        data.generate(database, 2 * args.keys, args.body_bytes)
        process = subjects.start_hotrow(folder, database)
        try:
            results, table, verdict = freshness.measure(
                process.port, lambda: writer(database), args.rate, args, contextlib.nullcontext()
            )
        finally:
            process.end()
    return report.keep(
        "feed-sqlite", {"settings": vars(args), **results}, table, [verdict], args.runs
    )


if __name__ == "__main__":
    cli.run(main)
