#!/usr/bin/env python3
"""Measures the time from COMMIT to visible over HTTP with MariaDB, and the feed's cost in the
server: see lib/feed.py.

The feed has its own user, which distinguishes its sessions from the readers'. The server does not
wait for the disk (sync_binlog and innodb_flush_log_at_trx_commit are 0): samples begin after COMMIT
has returned, and a slow disk would only limit the rate.
"""

import os
import sys
import time

sys.path.insert(0, os.path.realpath(os.path.join(os.path.dirname(__file__), "..")))

from lib import cli, feed, mariadb, subjects  # noqa: E402
from lib.process import Failed  # noqa: E402


SETTLE_S = 30


def start(folder):
    return mariadb.Server(folder, {"sync-binlog": "0", "innodb-flush-log-at-trx-commit": "0"})


def serve(folder, server):
    return subjects.start_hotrow_over(
        folder, server.url("reader"), core="0-1", source=f'feed_url = "{server.url("feed")}"'
    )


def parts(server):
    deadline = time.monotonic() + SETTLE_S
    while True:
        sessions = server.threads_of("feed")
        threads = {
            "dump": [thread for thread, command in sessions if command.startswith("Binlog Dump")],
            "sql": [
                thread for thread, command in sessions if not command.startswith("Binlog Dump")
            ],
        }
        if len(threads["dump"]) == 1 and threads["sql"]:
            break
        # The server notices the end of the startup checks' sessions with its next heartbeat.
        if time.monotonic() > deadline:
            raise Failed(f"the feed has one dump thread and a session, not {sessions}")
        time.sleep(0.1)
    return lambda: {name: sum(map(server.thread_cpu_ns, those)) for name, those in threads.items()}


def connect(server):
    session = mariadb.Session(server.port)

    def commit(revision, key):
        # One round trip and one commit, like most services.
        session.run(f"UPDATE shop.products SET revision = {revision} WHERE id = {key}")

    return commit


if __name__ == "__main__":
    cli.run(lambda: feed.measure("feed-mariadb", __doc__, start, serve, parts, connect))
