#!/usr/bin/env python3
"""Measures what a change costs on its way through the hub: CPU time of the relay, of NATS for each
instance, and of an instance; and the bytes of its message.

With two instances and with ten, the same writes are made, and then none for as long. The difference
is the cost of the changes; that of NATS is divided by the instances. The model of docs/routing.md has
these figures as inputs.
"""

import json
import os
import sys
import time
import urllib.request

sys.path.insert(0, os.path.realpath(os.path.join(os.path.dirname(__file__), "..")))

from feed import hub  # noqa: E402
from lib import cli, freshness, postgres, process, report  # noqa: E402


def relay_bytes(admin):
    with urllib.request.urlopen(f"http://127.0.0.1:{admin}/status") as answer:
        return json.load(answer)["message_bytes"]


def cost(server, parts, rate, seconds):
    """Returns the CPU time of each part in µs per change, and the changes made."""
    session = postgres.Session(server.port)

    def spent():
        return {name: process.cpu_ns(pid) for name, pid in parts.items()}

    idle = spent()
    time.sleep(seconds)
    before = spent()
    begun = time.monotonic()
    for number in range(rate * seconds):
        wait = begun + number / rate - time.monotonic()
        if wait > 0:
            time.sleep(wait)
        session.run(f"UPDATE products SET stock = {number} WHERE id = {1 + number % 500}")
    time.sleep(max(0, begun + seconds - time.monotonic()))
    after = spent()
    changes = rate * seconds
    return {
        name: (after[name] - before[name] - (before[name] - idle[name])) / 1e3 / changes
        for name in parts
    }


def measure(args):
    found = {}
    with hub.database(2 * args.keys, args.body_bytes) as (started, folder, server):
        nats = started(hub.nats(folder))
        relay = started(hub.relay(folder, server, nats.port))
        instances = []
        for count in args.instances:
            while len(instances) < count:
                number = len(instances)
                instances.append(started(hub.instance(folder, server, nats.port, number)))
            hub.sessions(server, count)
            time.sleep(2)
            parts = {"relay": relay.pid, "nats": nats.pid}
            parts |= {f"instance {n}": own.pid for n, own in enumerate(instances)}
            bytes_before = relay_bytes(relay.port)
            of = cost(server, parts, args.rate, args.seconds)
            own = [value for name, value in of.items() if name.startswith("instance")]
            found[count] = {
                "relay": of["relay"],
                "nats per instance": of["nats"] / count,
                "instance": sum(own) / count,
                "bytes": (relay_bytes(relay.port) - bytes_before) / (args.rate * args.seconds),
            }
    return found


def main():
    parser = freshness.parser(__doc__)
    parser.add_argument("--rate", type=int, default=500, help="writes per second")
    parser.add_argument("--instances", type=int, nargs="+", default=[2, 10])
    args = parser.parse_args()
    found = measure(args)
    heads = ["instances", "relay", "NATS, per instance", "instance", "bytes per change"]
    rows = [
        [count, *(f"{of[part]:,.1f}" for part in ("relay", "nats per instance", "instance")),
         f"{of['bytes']:,.0f}"]
        for count, of in found.items()
    ]
    text = f"## CPU time in µs per change at {args.rate} changes/s\n\n{report.table(heads, rows)}"
    kept = {"settings": vars(args), "cost": found}
    return report.keep("feed-hub-cost", kept, text, [], args.runs)


if __name__ == "__main__":
    cli.run(main)
