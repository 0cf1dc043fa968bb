#!/usr/bin/env python3
"""Memory of idle connections: each has had one answer and stays open. Without kernel buffers."""

import argparse
import os
import sys
import tempfile
import time

sys.path.insert(0, os.path.realpath(os.path.join(os.path.dirname(__file__), "..")))

from lib import cli, data, report, subjects  # noqa: E402
from lib.http import Connection  # noqa: E402
from lib.process import Failed, allow_open_files  # noqa: E402

AIM_BYTES = 2_048
SETTLE_S = 1
MORE = """\
[limits]
connections = {0}
connections_per_client = 0
idle_timeout = "10m"
"""


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connections", type=int, default=8_000)
    cli.add_runs(parser)
    return parser.parse_args()


def open_idle(process, count, body_bytes):
    """Opens connections and makes one request on each."""
    connections = []
    for _ in range(count):
        connection = Connection(process.port)
        answer = connection.get("/products/1")
        if answer.status != 200 or len(answer.body) != body_bytes:
            raise Failed(f"/products/1 answers {answer.head!r}")
        connections.append(connection)
    return connections


def main():
    args = arguments()
    wanted = args.connections + 500
    allow_open_files(wanted, "--connections")
    cases = {}
    with tempfile.TemporaryDirectory(prefix="hotrow-bench-") as folder:
        # A body of 20 kB leaves larger buffers behind than one of 319 bytes, if any stay.
        for name, body_bytes in (("319 bytes", 319), ("20 kB", 20_000)):
            database = os.path.join(folder, f"{body_bytes}.db")
            data.generate(database, 10, body_bytes)
            process = subjects.start_hotrow(
                folder, database, name=f"hotrow-{body_bytes}", more=MORE.format(2 * wanted)
            )
            try:
                # The first ones pay for what all share.
                first = open_idle(process, 100, body_bytes)
                time.sleep(SETTLE_S)
                before = process.rss_bytes()
                connections = open_idle(process, args.connections, body_bytes)
                time.sleep(SETTLE_S)
                grown = process.rss_bytes() - before
            finally:
                process.end()
            for connection in first + connections:
                connection.close()
            cases[name] = {"grown_bytes": grown, "bytes_per_connection": grown / args.connections}
    rows = [[name, f"{c['bytes_per_connection']:,.0f}"] for name, c in cases.items()]
    verdicts = [
        report.verdict(
            f"bytes of an idle connection, last answer {name}",
            c["bytes_per_connection"],
            AIM_BYTES,
            "bytes",
        )
        for name, c in cases.items()
    ]
    table = report.table(["last answer", "resident bytes per idle connection"], rows)
    return report.keep("idle", {"settings": vars(args), "cases": cases}, table, verdicts, args.runs)


if __name__ == "__main__":
    cli.run(main)
