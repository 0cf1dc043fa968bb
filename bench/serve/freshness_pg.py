#!/usr/bin/env python3
"""From COMMIT to visible over HTTP with PostgreSQL, and what the feed costs the server.

lib/freshness.py says what a sample is. The feed's cost is the CPU time of its walsender and of its SQL session while the
writes go on, per change; the same is taken of an idle database, per second. Everything shares the machine's cores. The server
does not wait for the disk (fsync off): samples begin when COMMIT has returned, and a slow disk would only keep the rate from
being reached.
"""

import contextlib
import os
import sys
import tempfile
import time

sys.path.insert(0, os.path.realpath(os.path.join(os.path.dirname(__file__), "..")))

from lib import cli, freshness, postgres, process, report, subjects  # noqa: E402
from lib.process import Failed  # noqa: E402

IDLE_S = 10


class FeedCost:
    """CPU time of the feed's two processes in the server while the context lasts."""

    def __init__(self, server):
        self.pids = {"walsender": server.backends("backend_type = 'walsender'"),
                     "sql": server.backends("backend_type = 'client backend' AND application_name LIKE '%feed%'")}
        if any(len(pids) != 1 for pids in self.pids.values()):
            raise Failed(f"the feed has one walsender and one session, not {self.pids}")

    def _now_ns(self):
        return {name: sum(process.cpu_ns(pid) for pid in pids) for name, pids in self.pids.items()}

    def __enter__(self):
        self.begun_ns, self.begun = time.monotonic_ns(), self._now_ns()

    def __exit__(self, *_):
        self.us = {name: (ns - self.begun[name]) / 1e3 for name, ns in self._now_ns().items()}
        self.elapsed_s = (time.monotonic_ns() - self.begun_ns) / 1e9


def writer(port):
    session = postgres.Session(port)

    def commit(revision, key):
        # One round trip and one commit, as most services write.
        session.run(f"UPDATE products SET revision = {revision} WHERE id = {key}")

    return commit


def main():
    parser = freshness.parser(__doc__)
    parser.add_argument("--rates", default="100,1000", help="writes per second, one run each")
    given = parser.parse_args()
    rates = [int(rate) for rate in given.rates.split(",")]
    runs, tables, verdicts = [], [], []
    with tempfile.TemporaryDirectory(prefix="hotrow-bench-") as folder:
        server = postgres.Server(folder, {"fsync": "off"})
        try:
            server.load_products(2 * given.keys, given.body_bytes)
            hotrow = subjects.start_hotrow_over(folder, server.url, core="0-1")
            try:
                idle = FeedCost(server)
                with idle:
                    time.sleep(IDLE_S)
                for rate in rates:
                    cost = FeedCost(server)
                    results, table, verdict = freshness.measure(hotrow.port, lambda: writer(server.port), rate, given, cost)
                    changes = results["written"]["writes"]
                    results["feed_us_per_change"] = {name: us / changes for name, us in cost.us.items()}
                    runs.append(results)
                    figures = ", ".join(f"{name} {us:.1f} µs" for name, us in results["feed_us_per_change"].items())
                    tables.append(f"## {rate:,} writes/s\n\n{table}\n\nThe feed's CPU time in the server per change: {figures}.")
                    verdicts.append(verdict)
            finally:
                hotrow.end()
        finally:
            server.end()
    idle_us = {name: us / idle.elapsed_s for name, us in idle.us.items()}
    tables.append("On an idle database the feed takes per second: "
                  + ", ".join(f"{name} {us:.0f} µs" for name, us in idle_us.items()) + ".")
    settings = {**vars(given), "server": server.settings}
    return report.keep("freshness-pg", {"settings": settings, "runs": runs, "idle_feed_us_per_second": idle_us},
                       "\n\n".join(tables), verdicts, given.runs)


if __name__ == "__main__":
    cli.run(main)
