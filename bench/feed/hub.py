#!/usr/bin/env python3
"""Measures the change hub: the time from COMMIT to visible over HTTP through NATS, and what the
database pays for one instance and for twenty.

1. Five instances follow one relay. Samples, as lib/freshness.py defines them, come from one of
   them, while the others follow.
2. With one instance, and then with twenty, the same writes are made. The database's CPU time for
   the feed is that of its walsender and of the relay's SQL session. That of the instances' sessions
   which watch the catalogue is given beside it, because it grows with the instances.

All processes share the machine's cores, so the figures of part 1 are an upper bound.
"""

import contextlib
import os
import shutil
import sys
import tempfile
import time

sys.path.insert(0, os.path.realpath(os.path.join(os.path.dirname(__file__), "..")))

from lib import cli, freshness, postgres, process, report, subjects  # noqa: E402
from lib.process import Failed, Process, free_port  # noqa: E402

AIM_P99_MS = 10
AIM_CPU = 1.3
SETTLE_S = 30


def nats(folder):
    program = shutil.which("nats-server") or os.path.expanduser("~/go/bin/nats-server")
    port, store = free_port(), os.path.join(folder, "nats")
    command = [program, "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", store]
    return Process("nats", command, port, folder, "0-1")


def instance(folder, server, port, number):
    feed = f'feed = "nats://127.0.0.1:{port}"'
    return subjects.start_hotrow_over(
        folder, server.url, "16MiB", f"instance-{number}", core="0-1", source=feed
    )


def relay(folder, server, port):
    binary, admin = subjects.hotrow_binary(), free_port()
    if binary is None:
        raise Failed("there is no hotrow to measure: set HOTROW to the binary")
    path = os.path.join(folder, "relay.toml")
    with open(path, "w") as file:
        file.write(
            f'[listen]\nadmin = "127.0.0.1:{admin}"\n[source]\nurl = "{server.url}"\n'
            f'feed = "nats://127.0.0.1:{port}"\n[collections.products]\n'
        )
    return Process("relay", [binary, "relay", "--config", path], admin, folder, "0-1")


def sessions(server, instances):
    """Returns the sessions of the feed by part, once there are as many as expected."""
    deadline = time.monotonic() + SETTLE_S
    feeds = "backend_type = 'client backend' AND application_name LIKE '%feed%'"
    while True:
        walsenders = server.backends("backend_type = 'walsender'")
        # The relay's probes ask for the log's end; the others only look at the catalogue.
        probes = server.backends(f"{feeds} AND query LIKE '%pg_current_wal_insert_lsn%'")
        watchers = [pid for pid in server.backends(feeds) if pid not in probes]
        if len(walsenders) == 1 and len(probes) == 1 and len(watchers) == instances:
            return {"walsender": walsenders, "probes": probes, "catalogue": watchers}
        if time.monotonic() > deadline:
            raise Failed(f"unexpected sessions: {walsenders}, {probes}, {watchers}")
        time.sleep(0.05)


def writes(server, rate, seconds, of):
    """Makes commits at this rate and returns the CPU time of the parts per second in µs."""
    session = postgres.Session(server.port)
    read = {name: sum(map(process.cpu_ns, pids)) for name, pids in of.items()}
    begun = time.monotonic()
    for number in range(rate * seconds):
        wait = begun + number / rate - time.monotonic()
        if wait > 0:
            time.sleep(wait)
        session.run(f"UPDATE products SET stock = {number} WHERE id = {1 + number % 500}")
    elapsed = time.monotonic() - begun
    return {
        name: (sum(map(process.cpu_ns, pids)) - read[name]) / 1e3 / elapsed
        for name, pids in of.items()
    }


def connect(server):
    session = postgres.Session(server.port)

    def commit(revision, key):
        session.run(f"UPDATE products SET revision = {revision} WHERE id = {key}")

    return commit


@contextlib.contextmanager
def database(rows, body_bytes):
    """Gives a function that ends later what it is given, a folder, and a database of products."""
    with tempfile.TemporaryDirectory("hotrow-bench") as folder, contextlib.ExitStack() as stack:
        def started(made):
            stack.callback(made.end)
            return made

        server = started(postgres.Server(folder, {"fsync": "off", "max_connections": "200"}))
        server.load_products(rows, body_bytes)
        yield started, folder, server


def measure(args):
    with database(2 * args.keys, args.body_bytes) as (started, folder, server):
        port = started(nats(folder)).port
        started(relay(folder, server, port))
        instances = [started(instance(folder, server, port, 0))]
        cost = {1: writes(server, args.rate // 5, args.seconds, sessions(server, 1))}
        for number in range(1, args.instances):
            instances.append(started(instance(folder, server, port, number)))
        figures, table, _ = freshness.measure(
            instances[0].port, lambda: connect(server), args.rate, args, contextlib.nullcontext()
        )
        for number in range(args.instances, args.many):
            instances.append(started(instance(folder, server, port, number)))
        of = sessions(server, args.many)
        cost[args.many] = writes(server, args.rate // 5, args.seconds, of)
        slots = len(of["walsender"])
    return figures, table, cost, slots


def main():
    parser = freshness.parser(__doc__)
    parser.add_argument("--rate", type=int, default=1000, help="writes per second of part 1")
    parser.add_argument("--instances", type=int, default=5, help="of part 1")
    parser.add_argument("--many", type=int, default=20, help="instances of part 2")
    args = parser.parse_args()
    figures, table, cost, slots = measure(args)
    feed = {count: of["walsender"] + of["probes"] for count, of in cost.items()}
    rows = [
        [count, *(f"{of[part]:,.0f}" for part in ("walsender", "probes", "catalogue"))]
        for count, of in cost.items()
    ]
    heads = ["instances", "walsender", "probes", "catalogue"]
    text = (
        f"## COMMIT to visible, {args.instances} instances\n\n{table}\n\n"
        f"## CPU time in the database, µs per second at {args.rate // 5} writes/s\n\n"
        f"{report.table(heads, rows)}\n\nSlots with {args.many} instances: {slots}."
    )
    p99 = figures["figures_ms"]["visible"]["p99"]
    ratio = feed[args.many] / feed[1]
    verdicts = [
        report.verdict(f"commit to visible at {args.rate:,} writes/s, p99", p99, AIM_P99_MS, "ms"),
        report.verdict(f"slots with {args.many} instances", slots, 1),
        report.verdict(f"CPU for feed and probes, {args.many} instances over 1", ratio, AIM_CPU),
    ]
    results = {"settings": vars(args), "freshness": figures, "cpu_us_per_s": cost}
    return report.keep("feed-hub", results, text, verdicts, args.runs)


if __name__ == "__main__":
    cli.run(main)
