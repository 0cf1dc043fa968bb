#!/usr/bin/env python3
"""Memory and CPU time of many followers of changes (`GET /_changes/products`), each of which gets
every event. Without kernel buffers.

A transaction changes some records; when all followers have got all of its events, the next one
begins. Memory must not grow with the events, which are kept once for all followers.
"""

import argparse
import os
import select
import socket
import sqlite3
import sys
import tempfile
import time

sys.path.insert(0, os.path.realpath(os.path.join(os.path.dirname(__file__), "..")))

from lib import cli, data, report, subjects  # noqa: E402
from lib.process import Failed, allow_open_files  # noqa: E402

RECORDS = 1_000
SETTLE_S = 1
WAIT_S = 60
REQUEST = b"GET /_changes/products HTTP/1.1\r\nHost: a\r\n\r\n"
CHANGE = b"event: change"
# The first lines belong to the section of the collection.
MORE = """\
changes = true
[follow]
followers = {0}
followers_per_client = 0
heartbeat = "1m"
[limits]
connections = {0}
connections_per_client = 0
"""
# Growth of memory from the first third of the events to the end, as a share.
GROWTH_AIM = 1.05


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--followers", type=int, default=10_000)
    parser.add_argument("--changes", type=int, default=100, help="records per transaction")
    parser.add_argument("--transactions", type=int, default=30)
    cli.add_runs(parser)
    return parser.parse_args()


class Followers:
    """Connections that follow, and the bytes that may be the beginning of a name."""

    def __init__(self):
        self.poll = select.epoll()
        self.sockets = {}
        self.rest = {}

    def open(self, port, count):
        for _ in range(count):
            connection = socket.create_connection(("127.0.0.1", port))
            connection.sendall(REQUEST)
            connection.setblocking(False)
            self.sockets[connection.fileno()] = connection
            self.rest[connection.fileno()] = b""
            self.poll.register(connection, select.EPOLLIN)

    def receive(self, text, wanted):
        """Reads until `text` has come `wanted` times in all."""
        seen, deadline = 0, time.monotonic() + WAIT_S
        while seen < wanted:
            if time.monotonic() > deadline:
                raise Failed(f"{seen} of {wanted} times {text.decode()} in {WAIT_S} s")
            for number, _ in self.poll.poll(1):
                received = self.sockets[number].recv(1 << 18)
                if not received:
                    raise Failed("a follower was dropped")
                received = self.rest[number] + received
                seen += received.count(text)
                # The end may be the beginning of another one, and is never a whole one.
                self.rest[number] = received[-(len(text) - 1):]
        if seen > wanted:
            raise Failed(f"{seen} times {text.decode()}, and not {wanted}")

    def close(self):
        for connection in self.sockets.values():
            connection.close()


def change(database, revision, count):
    database.execute("BEGIN IMMEDIATE")
    for offset in range(count):
        number = 1 + (revision * count + offset) % RECORDS
        database.execute("UPDATE products SET revision = ? WHERE id = ?", (revision, number))
    database.execute("COMMIT")


def main():
    args = arguments()
    wanted = args.followers + 500
    allow_open_files(wanted, "--followers")
    followers, marks = Followers(), []
    with tempfile.TemporaryDirectory(prefix="hotrow-bench-") as folder:
        path = os.path.join(folder, "products.db")
        data.generate(path, RECORDS, 319)
        hotrow = subjects.start_hotrow(folder, path, more=MORE.format(2 * wanted))
        try:
            database = sqlite3.connect(path, isolation_level=None, timeout=10)
            time.sleep(SETTLE_S)
            marks.append(("no follower", 0, hotrow.rss_bytes()))
            followers.open(hotrow.port, args.followers)
            followers.receive(b"event: begin", args.followers)
            time.sleep(SETTLE_S)
            marks.append(("no event", 0, hotrow.rss_bytes()))
            before_ns = hotrow.cpu_ns()
            for revision in range(1, args.transactions + 1):
                change(database, revision, args.changes)
                followers.receive(CHANGE, args.followers * args.changes)
                if revision in (args.transactions // 3, args.transactions):
                    events = revision * args.changes
                    marks.append((f"{events:,} events each", events, hotrow.rss_bytes()))
            cpu_ns = hotrow.cpu_ns() - before_ns
        finally:
            hotrow.end()
            followers.close()
    sent = args.followers * args.changes * args.transactions
    per_follower = (marks[1][2] - marks[0][2]) / args.followers
    growth = marks[3][2] / marks[2][2]
    results = {
        "settings": vars(args),
        "rss_bytes": [{"after": name, "events": events, "bytes": b} for name, events, b in marks],
        "bytes_per_idle_follower": per_follower,
        "cpu_ns_per_event": cpu_ns / sent,
    }
    rows = [[name, f"{b / 1e6:,.1f} MB"] for name, _, b in marks]
    table = report.table(["after", "resident"], rows)
    text = (
        f"{table}\n\n{per_follower:,.0f} bytes per idle follower; {cpu_ns / sent:,.0f} ns of CPU "
        f"time per event and follower, {sent / 1e6:,.1f} million in all.\n"
    )
    verdict = report.verdict("memory at the end / after a third of the events", growth, GROWTH_AIM)
    return report.keep("followers", results, text, [verdict], args.runs)


if __name__ == "__main__":
    cli.run(main)
