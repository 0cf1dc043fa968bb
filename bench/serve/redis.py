#!/usr/bin/env python3
"""CPU time per GET over the Redis protocol, beside redis-server with the same keys and values, one
command at a time and 16 at once."""

import argparse
import csv
import json
import os
import random
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.realpath(os.path.join(os.path.dirname(__file__), "..")))

from lib import cli, data, http, report, stats, subjects, wrk  # noqa: E402
from lib.process import Failed, Process, free_port  # noqa: E402

# By the number of commands that are sent at once: the largest ratio of CPU times.
AIMS = {1: 1.1, 16: 1.3}
CALM_TIMEOUT_S = 30
# redis-benchmark pads its random numbers to so many digits.
DIGITS = 12
KEY = "key:__rand_int__"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ids", type=int, default=1_000, help="keys to choose from")
    parser.add_argument("--body-bytes", type=int, default=319)
    parser.add_argument("--commands", type=int, default=200_000, help="per subject and round")
    cli.add_measurement(parser, rounds=8, seed=False)
    return parser.parse_args()


def generate(path, args):
    """Writes the products again with ids of text, in a table of their own."""
    data.generate(path, args.ids, args.body_bytes)
    database = sqlite3.connect(path)
    database.execute(
        f"CREATE TABLE texts AS SELECT printf('%0{DIGITS}d', id - 1) AS id, sku, name, category,"
        " price_cents, stock, revision, description FROM products"
    )
    database.execute("CREATE TABLE key(id TEXT PRIMARY KEY, sku, name, category, price_cents,"
                     " stock, revision, description)")
    database.execute("INSERT INTO key SELECT * FROM texts")
    database.execute("DROP TABLE texts")
    database.commit()
    database.close()


class Connection:
    """A client of its own, so that values are not checked by the program that measures."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        self.file = self.socket.makefile("rb")

    def ask(self, *arguments):
        """Sends a command, and returns the reply: bytes, or None."""
        parts = [b"*%d\r\n" % len(arguments)]
        for argument in arguments:
            argument = argument if isinstance(argument, bytes) else argument.encode()
            parts.append(b"$%d\r\n%s\r\n" % (len(argument), argument))
        self.socket.sendall(b"".join(parts))
        line = self.file.readline()
        if line.startswith(b"$"):
            length = int(line[1:])
            return self.file.read(length + 2)[:length] if length >= 0 else None
        if line.startswith(b"+"):
            return line[1:-2]
        raise Failed(f"the reply to {arguments[0]} is {line!r}")

    def close(self):
        self.file.close()
        self.socket.close()


def fill(hotrow_port, redis_port, args):
    """Gives redis-server the values of hotrow, and checks that both have the same."""
    hotrow, redis = Connection(hotrow_port), Connection(redis_port)
    for number in range(args.ids):
        key = f"key:{number:0{DIGITS}d}"
        value = hotrow.ask("GET", key)
        if not value or len(value) < args.body_bytes // 2:
            raise Failed(f"hotrow has no {key}: {value!r}")
        redis.ask("SET", key, value)
        if redis.ask("GET", key) != value or hotrow.ask("GET", key) != value:
            raise Failed(f"the values of {key} differ")
    hotrow.close()
    redis.close()


def load(port, _file, _seconds, connections, core, depth, commands, ids):
    """Returns redis-benchmark's own counts, in the form of wrk's."""
    command = [
        "taskset", "-c", str(core), "redis-benchmark", "--csv", "-p", str(port),
        "-c", str(connections), "-P", str(depth), "-n", str(commands), "-r", str(ids), "-e",
        "GET", KEY,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    rows = [row for row in csv.reader(done.stdout.splitlines()) if row and row[0].startswith("GET")]
    if done.returncode != 0 or len(rows) != 1 or "Error from server" in done.stdout + done.stderr:
        raise Failed(f"{' '.join(command)} failed:\n{done.stdout[-1000:]}{done.stderr[-1000:]}")
    rate = float(rows[0][1])
    return {"requests": commands, "duration_us": commands / rate * 1e6}


def await_calm(hotrow):
    """Waits until the service does not shed load: it was late by the time for which it was stopped.
    """
    deadline = time.monotonic() + CALM_TIMEOUT_S
    while True:
        connection = http.Connection(hotrow.admin_port)
        level = json.loads(connection.get("/status").body)["overload"]["level"]
        connection.close()
        if level == "normal":
            return
        if time.monotonic() > deadline:
            raise Failed(f"hotrow is at level {level} after {CALM_TIMEOUT_S} s without load")
        time.sleep(0.1)


def main():
    args = arguments()
    with tempfile.TemporaryDirectory(prefix="hotrow-bench-") as folder:
        database = os.path.join(folder, "products.db")
        generate(database, args)
        port = free_port()
        hotrow = subjects.start_hotrow(
            folder,
            database,
            listen=f'redis = "127.0.0.1:{port}"',
            more='[collections.key]\ntable = "key"\nkey = "id"\n',
        )
        ports = {"hotrow": port, "redis-server": free_port()}
        settings = ["--save", "", "--appendonly", "no", "--port", str(ports["redis-server"])]
        redis = Process(
            "redis-server",
            ["redis-server", *settings, "--dir", folder],
            ports["redis-server"],
            folder,
        )
        subjects_by_name = {"hotrow": hotrow, "redis-server": redis}

        def one_round(number, depth):
            results = {}
            for name in random.Random(number).sample(sorted(ports), k=2):
                process = subjects_by_name[name]
                others = [other for other in subjects_by_name.values() if other is not process]
                for other in others:
                    other.pause()
                if process is hotrow:
                    await_calm(hotrow)
                # Pipelined commands are too cheap for a round of as many.
                commands = args.commands * (1 if depth == 1 else 5)
                form = {"depth": depth, "commands": commands, "ids": args.ids}
                results[name] = wrk.measured(
                    process,
                    None,
                    0,
                    connections=args.connections,
                    load=lambda _, *rest, own=ports[name], **more: load(own, *rest, **more),
                    **form,
                )
                for other in others:
                    other.resume()
            return results

        rounds, disturbed = {}, {}
        try:
            fill(ports["hotrow"], ports["redis-server"], args)
            for depth in AIMS:
                rounds[depth], disturbed[depth] = wrk.quiet_rounds(
                    args.rounds, args.foreign_limit, lambda number, own=depth: one_round(number, own)
                )
        finally:
            hotrow.end()
            redis.end()
    rows, verdicts = [], []
    for depth, aim in AIMS.items():
        of = {
            name: [results[name]["cpu_us_per_request"] for results in rounds[depth]]
            for name in ports
        }
        ratio = stats.ratio(of["hotrow"], of["redis-server"])
        for name in ports:
            rate = stats.median([results[name]["throughput_rps"] for results in rounds[depth]])
            share = stats.median([results[name]["cpu_share"] for results in rounds[depth]])
            rows.append(
                [
                    depth,
                    name,
                    f"{stats.median(of[name]):.2f}",
                    f"{rate:,.0f}",
                    f"{100 * share:.0f} %",
                ]
            )
        verdicts.append(
            report.verdict(
                f"CPU time per GET, {depth} at once, as ratio to redis-server",
                ratio["median"],
                aim,
                interval=(ratio["low"], ratio["high"]),
            )
        )
    heads = ["at once", "server", "CPU µs per GET", "GET/s", "share of its core"]
    return report.keep(
        "redis",
        {"settings": vars(args), "rounds": rounds, "disturbed_rounds": disturbed},
        report.table(heads, rows),
        verdicts,
        args.runs,
    )


if __name__ == "__main__":
    cli.run(main)
