#!/usr/bin/env python3
"""CPU time per GET over the Redis protocol from connections that track what they read (CLIENT
TRACKING ON), and from others, interleaved, one command at a time and 16 at once.

All keys are in memory and none changes: the figure is the cost of remembering who has read what,
not of invalidations. The client is Python (lib/resp_load.py) and loads the server by a part: the
CPU time of a wake-up is in both forms.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.realpath(os.path.join(os.path.dirname(__file__), "..")))

from lib import cli, http, report, resp, stats, wrk  # noqa: E402
from lib.process import Failed  # noqa: E402

DEPTHS = [1, 16]
# Options of lib/resp_load.py.
FORMS = {"off": [], "on": ["--tracking"]}
LOAD = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", "lib", "resp_load.py"))
CPU = "cpu_us_per_request"
FULL = 'hotrow_redis_invalidate_alls_total{reason="full"}'


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ids", type=int, default=1_000, help="keys to choose from")
    parser.add_argument("--body-bytes", type=int, default=319)
    parser.add_argument("--commands", type=int, default=200_000, help="per form and round")
    cli.add_measurement(parser, rounds=9, seed=False)
    return parser.parse_args()


def fill(port, ids):
    """Fills the cache: a reply that memory does not keep would be followed by its invalidation."""
    connection = resp.Connection(port)
    for number in range(ids):
        key = resp.key_of(number)
        if not connection.ask("GET", key):
            raise Failed(f"hotrow has no {key}")
    connection.close()


def load(port, _file, _seconds, connections, core, depth, commands, ids, options):
    """Returns the counts of lib/resp_load.py."""
    numbers = [str(number) for number in (port, connections, depth, commands, ids)]
    command = ["taskset", "-c", str(core), sys.executable, LOAD, *numbers, *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        raise Failed(f"{' '.join(command)} failed:\n{done.stderr[-1000:]}")
    return json.loads(done.stdout)


def check(hotrow):
    """Fails if clients were made to give up everything for lack of room: they then track less."""
    connection = http.Connection(hotrow.admin_port)
    lines = connection.get("/metrics").body.decode().splitlines()
    connection.close()
    counts = [float(line.split()[-1]) for line in lines if line.startswith(FULL)]
    if any(counts):
        raise Failed("redis.tracking_bytes has no room for all keys of all connections")


def main():
    args = arguments()
    with tempfile.TemporaryDirectory(prefix="hotrow-bench-") as folder:
        database = os.path.join(folder, "products.db")
        resp.generate(database, args)
        hotrow, port = resp.start_hotrow(folder, database)

        def one_round(number, depth):
            results = {}
            for name in random.Random(number).sample(sorted(FORMS), k=len(FORMS)):
                resp.await_calm(hotrow)
                # Pipelined commands are too cheap for a round of as many.
                commands = args.commands * (1 if depth == 1 else 5)
                results[name] = wrk.measured(
                    hotrow,
                    None,
                    0,
                    connections=args.connections,
                    load=lambda _, *rest, **more: load(port, *rest, **more),
                    depth=depth,
                    commands=commands,
                    ids=args.ids,
                    options=FORMS[name],
                )
            return results

        rounds, disturbed = {}, {}
        try:
            fill(port, args.ids)
            for depth in DEPTHS:
                rounds[depth], disturbed[depth] = wrk.quiet_rounds(
                    args.rounds,
                    args.foreign_limit,
                    lambda number, own=depth: one_round(number, own),
                )
            check(hotrow)
        finally:
            hotrow.end()
    rows = []
    for depth in DEPTHS:
        of = {name: [results[name][CPU] for results in rounds[depth]] for name in FORMS}
        ratio = stats.ratio(of["on"], of["off"])
        for name in FORMS:
            rate = stats.median([results[name]["throughput_rps"] for results in rounds[depth]])
            paired = f"{ratio['median']:.3f} [{ratio['low']:.3f}, {ratio['high']:.3f}]"
            rows.append(
                [
                    depth,
                    name,
                    f"{stats.median(of[name]):.2f}",
                    f"{rate:,.0f}",
                    paired if name == "on" else "1",
                ]
            )
    heads = ["at once", "CLIENT TRACKING", "CPU µs per GET", "GET/s", "CPU time, as ratio to off"]
    return report.keep(
        "tracking",
        {"settings": vars(args), "rounds": rounds, "disturbed_rounds": disturbed},
        report.table(heads, rows),
        [],
        args.runs,
    )


if __name__ == "__main__":
    cli.run(main)
