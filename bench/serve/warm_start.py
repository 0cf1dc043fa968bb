#!/usr/bin/env python3
"""Restart over PostgreSQL: time until hits are as frequent as before, cold and with a warm start.

The first half of a real trace (web12) is replayed, and the hit ratio of its last part noted. Hotrow
is stopped. Then it is started again, in each round without its file of hot keys (cold) and with it
(warm), in random order, and requests of the second half come at a constant rate from the moment
at which it is ready. `--instances` start at once in further rounds, each with that file; their
reads of the database are added up.
"""

import argparse
import collections
import json
import lzma
import os
import random
import shutil
import struct
import sys
import tempfile
import time

sys.path.insert(0, os.path.realpath(os.path.join(os.path.dirname(__file__), "..")))

from lib import cli, postgres, report, stats, subjects  # noqa: E402
from lib.http import Connection  # noqa: E402
from lib.process import Failed  # noqa: E402

TRACE = "web12.trace.xz"
# Requests over which a hit ratio is taken.
WINDOW = 1_000
# Share of the ratio before the stop at which a restart is over.
RECOVERED = 0.95
WARM_TIMEOUT_S = 60


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--traces", default=os.environ.get("HOTROW_TRACES"), help="folder")
    parser.add_argument("--rate", type=int, default=1_000, help="requests per second")
    parser.add_argument("--seconds", type=int, default=30, help="of requests after a start")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--instances", type=int, default=4)
    parser.add_argument("--capacity", default="64MiB")
    parser.add_argument("--body-bytes", type=int, default=319)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", help="folder for the kept run; '-' keeps nothing")
    return parser.parse_args()


def read_trace(folder):
    """Returns the keys of the trace, numbered from 1 in a random order, and their number."""
    if not folder or not os.path.exists(os.path.join(folder, TRACE)):
        raise Failed(f"there is no {TRACE}: name its folder with --traces or HOTROW_TRACES")
    with lzma.open(os.path.join(folder, TRACE)) as file:
        keys = [key for (key,) in struct.iter_unpack(">i", file.read())]
    unique = sorted(set(keys))
    random.Random(1).shuffle(unique)
    numbers = {key: number for number, key in enumerate(unique, 1)}
    return [numbers[key] for key in keys], len(unique)


def start(folder, server, name, file, args):
    more = f'[warm]\nfile = "{file}"\n'
    return subjects.start_hotrow_over(
        folder, server.url, args.capacity, name, core="0-1", more=more
    )


def replay(port, ids, rate=None):
    """Sends the requests, at `rate` per second or as fast as they are answered. Returns for each
    the time and whether memory answered it.
    """
    connection = Connection(port)
    begun, answers = time.monotonic(), []
    for i, number in enumerate(ids):
        if rate and (wait := begun + i / rate - time.monotonic()) > 0:
            time.sleep(wait)
        answer = connection.get(f"/products/{number}")
        if answer.status != 200:
            raise Failed(f"/products/{number} answers {answer.head!r}")
        answers.append((time.monotonic() - begun, answer.header("hotrow-cache") == "hit"))
    connection.close()
    return answers


def recovered_after(answers, ratio):
    """Returns the seconds until the window's hit ratio is RECOVERED of `ratio`; None: never."""
    window = collections.deque(maxlen=WINDOW)
    for at, hit in answers:
        window.append(hit)
        # From the first hundred on: a warm service shows its ratio before a window is full.
        if len(window) >= WINDOW // 10 and sum(window) / len(window) >= RECOVERED * ratio:
            return at
    return None


def warm_start(process):
    """Waits until the warm start has ended. Returns its state, and the queries up to then."""
    deadline = time.monotonic() + WARM_TIMEOUT_S
    while True:
        connection = Connection(process.admin_port)
        status = json.loads(connection.get("/status").body)
        connection.close()
        state = status["warm_start"]
        if state["stage"] not in ("waiting", "loading"):
            return {**state, "fills": status["collections"]["products"]["fills"]}
        if time.monotonic() > deadline:
            raise Failed(f"the warm start does not end: {state}")
        time.sleep(0.01)


def one_start(folder, server, kind, file, ids, ratio, args):
    own = os.path.join(folder, f"{kind}-hot-keys")
    if kind == "warm":
        shutil.copy(file, own)
    process = start(folder, server, kind, own, args)
    try:
        answers = replay(process.port, ids, args.rate)
        state = warm_start(process)
    finally:
        process.end()
    if os.path.exists(own):
        os.remove(own)
    misses = sum(1 for _, hit in answers if not hit)
    first = [hit for at, hit in answers if at <= 1] or [False]
    early = sum(1 for at, hit in answers if not hit and at <= 5)
    return {
        "recovered_s": recovered_after(answers, ratio),
        "ratio_first_second": sum(first) / len(first),
        "misses": misses,
        "misses_first_5_s": early,
        "warm_start": state,
    }


def many_starts(folder, server, file, args):
    """Starts several instances at once. Returns their reads and the seconds until all are warm."""
    running = []
    begun = time.monotonic()
    try:
        for i in range(args.instances):
            own = os.path.join(folder, f"many-{i}-hot-keys")
            shutil.copy(file, own)
            running.append(start(folder, server, f"many-{i}", own, args))
        states = [warm_start(process) for process in running]
        seconds = time.monotonic() - begun
    finally:
        for process in running:
            process.end()
    return {"seconds": seconds, "read_keys": [state["read_keys"] for state in states]}


def main():
    args = arguments()
    trace, unique = read_trace(args.traces)
    half = len(trace) // 2
    after = trace[half : half + args.rate * args.seconds]
    with tempfile.TemporaryDirectory(prefix="hotrow-bench-") as folder:
        server = postgres.Server(folder)
        try:
            server.load_products(unique, args.body_bytes)
            file = os.path.join(folder, "hot-keys")
            process = start(folder, server, "before", file, args)
            try:
                before = replay(process.port, trace[:half])
            finally:
                process.end()
            last = [hit for _, hit in before[-10 * WINDOW :]]
            ratio = sum(last) / len(last)
            if not os.path.exists(file):
                raise Failed("the stopped service left no file of hot keys")
            rounds = []
            for number in range(args.rounds):
                order = random.Random(args.seed + number).sample(["cold", "warm"], k=2)
                rounds.append(
                    {
                        kind: one_start(folder, server, kind, file, after, ratio, args)
                        for kind in order
                    }
                )
            many = many_starts(folder, server, file, args)
            file_bytes = os.path.getsize(file)
        finally:
            server.end()
    rows = []
    for kind in ("cold", "warm"):
        of = [one[kind] for one in rounds]
        times = [one["recovered_s"] for one in of]
        never = float("inf")
        recovered = stats.median([never if at is None else at for at in times])
        rows.append(
            [
                kind,
                "never" if recovered == never else f"{recovered:.2f}",
                f"{100 * stats.median([one['ratio_first_second'] for one in of]):.1f} %",
                f"{stats.median([one['misses_first_5_s'] for one in of]):,.0f}",
                f"{stats.median([one['warm_start']['read_keys'] for one in of]):,.0f}",
            ]
        )
    table = report.table(
        [
            "start",
            f"s until {100 * RECOVERED:.0f} % of the hit ratio before",
            "hit ratio, first second",
            "misses in 5 s",
            "keys read by the warm start",
        ],
        rows,
    )
    markdown = "\n".join(
        [
            f"Hit ratio before the stop: {100 * ratio:.1f} %. File of hot keys: "
            f"{file_bytes:,} bytes. {args.rate:,} requests/s.",
            "",
            table,
            "",
            f"{args.instances} instances at once: {sum(many['read_keys']):,} keys read from the "
            f"database, all warm {many['seconds']:.1f} s after the first start.",
        ]
    )
    results = {
        # Of the traces' folder, only what was read from it.
        "settings": {**vars(args), "traces": TRACE, "requests": len(trace), "records": unique},
        "ratio_before": ratio,
        "rounds": rounds,
        "instances": many,
    }
    return report.keep("warm-start", results, markdown, [], args.runs)


if __name__ == "__main__":
    cli.run(main)
