#!/usr/bin/env python3
"""Memory under attack: clients that request batches of large records and do not read them, and hits
beside them.

`--clients` connections each request one batch of `--rows` records of `--bytes` and read nothing;
refused ones repeat the request. Beside them, `hotrow load` makes hits at a fixed rate, before the
attack and during it. Saved are the largest resident size (VmHWM), the cache's capacity and the
budgets in /status, and the latencies of the hits.
"""

import argparse
import json
import os
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, os.path.realpath(os.path.join(os.path.dirname(__file__), "..")))

from lib import cli, report, subjects  # noqa: E402
from lib.http import Connection  # noqa: E402
from lib.process import Failed  # noqa: E402

BASE_BYTES = 64 << 20
HITS_P99_MS = 10
HITS_RATE = 1_000
HITS_IDS = 1_000
MIB = 1 << 20
REFUSED = b"HTTP/1.1 503"


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clients", type=int, default=40)
    parser.add_argument("--rows", type=int, default=1_000, help="records of one batch")
    parser.add_argument("--bytes", type=int, default=100_000, help="of one record")
    parser.add_argument("--capacity", type=int, default=256, help="of the cache, in MiB")
    parser.add_argument("--seconds", type=int, default=20, help="of each measurement")
    parser.add_argument("--more", default="", help="further sections of the configuration")
    cli.add_runs(parser)
    return parser.parse_args()


def fill(path, args):
    database = sqlite3.connect(path)
    database.executescript(
        "PRAGMA journal_mode = WAL; CREATE TABLE products(id INTEGER PRIMARY KEY, v TEXT);"
        "CREATE TABLE hot(id INTEGER PRIMARY KEY, v TEXT)"
    )
    database.executemany(
        "INSERT INTO products VALUES (?, ?)",
        ((i, "x" * args.bytes) for i in range(1, args.rows + 1)),
    )
    database.executemany(
        "INSERT INTO hot VALUES (?, ?)", ((i, "x" * 200) for i in range(1, HITS_IDS + 1))
    )
    database.commit()
    database.close()


def status(process):
    connection = Connection(process.admin_port)
    document = json.loads(connection.get("/status").body)
    connection.close()
    return document


def peak_bytes(process):
    """Returns the largest resident size of the service, which `taskset` has become by exec."""
    with open(f"/proc/{process.pid}/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM:"))


class Attacker(threading.Thread):
    """Requests a batch and reads only the status; after a refusal, repeats the request."""

    def __init__(self, port, request, ended):
        super().__init__(daemon=True)
        self.port, self.request, self.ended = port, request, ended
        self.served = self.refused = 0

    def run(self):
        while not self.ended.is_set():
            with socket.socket() as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 << 10)
                client.settimeout(60)
                try:
                    client.connect(("127.0.0.1", self.port))
                    client.sendall(self.request)
                    start = client.recv(12)
                except OSError:
                    continue
                if start == REFUSED:
                    self.refused += 1
                    # The value of Retry-After.
                    self.ended.wait(1)
                elif start:
                    self.served += 1
                    self.ended.wait()


def hits(process, seconds):
    command = [
        subjects.hotrow_binary(),
        "load",
        f"http://127.0.0.1:{process.port}/hot/{{id}}",
        "--ids",
        f"1..{HITS_IDS}",
        "-c",
        "10",
        "--rate",
        str(HITS_RATE),
        "-d",
        f"{seconds}s",
        "--json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failed(f"{' '.join(command)}: {done.stderr}")
    load_json = json.loads(done.stdout)
    return {
        "p50_ms": load_json["answered_us"]["p50"],
        "p99_ms": load_json["answered_us"]["p99"],
        "requests": load_json["requests"],
        "generator": load_json["generator"],
    }


def milliseconds(value):
    """Converts a latency of `hotrow load` in µs; "unbounded" means requests without an answer."""
    return value / 1e3 if isinstance(value, (int, float)) else float("inf")


def main():
    args = arguments()
    with tempfile.TemporaryDirectory(prefix="hotrow-bench-") as folder:
        database = os.path.join(folder, "attack.db")
        fill(database, args)
        process = subjects.start_hotrow(
            folder,
            database,
            f"{args.capacity}MiB",
            core="0-1",
            more=f'[collections.hot]\ntable = "hot"\n{args.more}',
        )
        try:
            hits(process, 2)
            calm = hits(process, args.seconds)
            body = json.dumps({"ids": list(range(1, args.rows + 1))}).encode()
            request = (
                b"POST /products HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
                % len(body)
            ) + body
            ended = threading.Event()
            attackers = [Attacker(process.port, request, ended) for _ in range(args.clients)]
            for attacker in attackers:
                attacker.start()
            beside = hits(process, args.seconds)
            limits, budgets, peak = (
                status(process)["limits"],
                status(process)["budgets"],
                peak_bytes(process),
            )
            ended.set()
        finally:
            process.end()
    for measured in (calm, beside):
        measured.update({name: milliseconds(measured[name]) for name in ("p50_ms", "p99_ms")})
    totals = sum(
        limits[name] for name in ("answers_bytes_total", "bodies_bytes_total", "rows_bytes_total")
    )
    allowed = args.capacity * MIB + totals + BASE_BYTES
    served, refused = (
        sum(getattr(one, name) for one in attackers) for name in ("served", "refused")
    )
    table = report.table(
        ["hits", "p50, ms", "p99, ms"],
        [
            [name, f"{one['p50_ms']:.2f}", f"{one['p99_ms']:.2f}"]
            for name, one in (("alone", calm), ("beside", beside))
        ],
    )
    table += (
        f"\n\n{args.clients} clients, {args.rows} × {args.bytes:,} bytes: "
        f"{served} answers begun, {refused} refused; "
        f"{peak / MIB:.0f} MiB at most, of {allowed / MIB:.0f}: "
        f"cache {args.capacity}, budgets {totals / MIB:.0f}, 64."
    )
    verdicts = [
        report.verdict("largest resident size over cache + budgets + 64 MiB", peak / allowed, 1.0),
        report.verdict("p99 of hits beside the attack", beside["p99_ms"], HITS_P99_MS, "ms"),
    ]
    results = {
        "settings": vars(args),
        "calm": calm,
        "beside": beside,
        "peak_bytes": peak,
        "limits": limits,
        "budgets": budgets,
        "served": served,
        "refused": refused,
    }
    return report.keep("memory-attack", results, table, verdicts, args.runs)


if __name__ == "__main__":
    cli.run(main)
