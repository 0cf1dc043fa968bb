#!/usr/bin/env python3
"""Measures the time from COMMIT to visible over HTTP with PostgreSQL, and the feed's cost in the
server: see lib/feed.py.

The parts are the feed's walsender and its SQL session. The server does not wait for the disk (fsync
off): samples begin after COMMIT has returned, and a slow disk would only limit the rate.
"""

import os
import sys

sys.path.insert(0, os.path.realpath(os.path.join(os.path.dirname(__file__), "..")))

from lib import cli, feed, postgres, process, subjects  # noqa: E402
from lib.process import Failed  # noqa: E402


def start(folder):
    return postgres.Server(folder, {"fsync": "off"})


def serve(folder, server):
    return subjects.start_hotrow_over(folder, server.url, core="0-1")


def parts(server):
    pids = {
        "walsender": server.backends("backend_type = 'walsender'"),
        "sql": server.backends(
            "backend_type = 'client backend' AND application_name LIKE '%feed%'"
        ),
    }
    if any(len(found) != 1 for found in pids.values()):
        raise Failed(f"the feed has one walsender and one session, not {pids}")
    return lambda: {name: sum(map(process.cpu_ns, found)) for name, found in pids.items()}


def connect(server):
    session = postgres.Session(server.port)

    def commit(revision, key):
        # One round trip and one commit, like most services.
        session.run(f"UPDATE products SET revision = {revision} WHERE id = {key}")

    return commit


if __name__ == "__main__":
    cli.run(lambda: feed.measure("feed-postgres", __doc__, start, serve, parts, connect))
