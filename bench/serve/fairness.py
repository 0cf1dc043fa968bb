#!/usr/bin/env python3
"""Time of cached reads beside clients that give their worker much to do: followers of changes that
do not read, while many records change; one connection of HTTP/2 with heads that unfold; one with
heads that copy the same name into the decoder's table again and again; one that pipelines.

One worker on core 0; everything else shares core 1. A reader of its own connection sends a request
every two milliseconds, and its p99 is the figure, beside that of a reader alone.
"""

import argparse
import os
import random
import socket
import sqlite3
import struct
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.realpath(os.path.join(os.path.dirname(__file__), "..")))

from followers import MORE, RECORDS, REQUEST, change  # noqa: E402
from lib import cli, data, report, subjects  # noqa: E402
from lib.http import Connection  # noqa: E402
from lib.process import allow_open_files  # noqa: E402

P99_MS_AIM = 5.0
INTERVAL_S = 0.002
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
# :method GET, :scheme http, :path /products/1, :authority a
FIELDS = b"\x82\x86\x04\x0b/products/1\x01\x01a"
# A field `a` of 2,000 bytes, and a name of 3,900 bytes, added to the table.
LONG_VALUE = b"\x40\x01a\x7f\xd1\x0e" + b"b" * 2000
LONG_NAME = b"\x40\x7f\xbd\x1d" + b"n" * 3900 + b"\x01v"
HEADS = {
    "heads that unfold": FIELDS + LONG_VALUE + b"\xbe" * 28_000,
    "heads that add": FIELDS + LONG_NAME + b"\x7e\x00" * 13_000,
}
# Frames of a head have at most so many bytes.
FRAME_BYTES = 16_384


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--followers", type=int, default=5_000)
    parser.add_argument("--changes", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=5.0)
    cli.add_runs(parser)
    return parser.parse_args()


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def head(stream, block):
    parts = [block[at : at + FRAME_BYTES] for at in range(0, len(block), FRAME_BYTES)]
    last = len(parts) - 1
    return b"".join(
        frame(9 if at else 1, (0 if at else 1) | (4 if at == last else 0), stream, part)
        for at, part in enumerate(parts)
    )


def drain(connection):
    try:
        while connection.recv(1 << 18):
            pass
    except OSError:
        pass


def flood(port, ended, beginning, requests):
    """Sends requests until it has ended, on another connection whenever one is closed."""
    while not ended.is_set():
        try:
            with socket.create_connection(("127.0.0.1", port)) as connection:
                threading.Thread(target=drain, args=(connection,), daemon=True).start()
                connection.sendall(beginning)
                for request in requests():
                    if ended.is_set():
                        return
                    connection.sendall(request)
        except OSError:
            pass


def streams(block):
    return lambda: (head(stream, block) for stream in range(1, 1 << 30, 2))


def pipelined():
    request = b"GET /products/1 HTTP/1.1\r\nHost: a\r\n\r\n" * 100
    return iter(lambda: request, None)


def follow(port, path, args, ended):
    followers = [socket.create_connection(("127.0.0.1", port)) for _ in range(args.followers)]
    for follower in followers:
        follower.sendall(REQUEST)
    database = sqlite3.connect(path, isolation_level=None, timeout=10)
    for revision in range(1, args.changes // 100 + 1):
        change(database, revision, 100)
        time.sleep(args.seconds * 100 / args.changes)
    ended.wait()
    for follower in followers:
        follower.close()


def read(port, seconds):
    """Returns the times of reads in milliseconds, sorted."""
    connection, times = Connection(port), []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        number = random.randint(1, RECORDS)
        began = time.monotonic()
        connection.get(f"/products/{number}")
        times.append((time.monotonic() - began) * 1e3)
        time.sleep(max(0, began + INTERVAL_S - time.monotonic()))
    connection.close()
    return sorted(times)


def beside(neighbour, port, seconds):
    """Reads beside a process that runs `neighbour`."""
    pid = os.fork()
    if pid == 0:
        neighbour(threading.Event())
        os._exit(0)
    try:
        time.sleep(1)
        return read(port, seconds)
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)


def main():
    args = arguments()
    allow_open_files(2 * args.followers + 500, "--followers")
    os.sched_setaffinity(0, {1})
    with tempfile.TemporaryDirectory(prefix="hotrow-bench-") as folder:
        path = os.path.join(folder, "products.db")
        data.generate(path, RECORDS, 319)
        more = MORE.format(2 * args.followers + 500) + 'send_bytes = "0"\n'
        hotrow = subjects.start_hotrow(folder, path, more=more, listen="http2 = true")
        port, settings = hotrow.port, PREFACE + frame(4, 0, 0)
        neighbours = {"none": lambda ended: ended.wait()}
        for name, block in HEADS.items():
            neighbours[name] = lambda ended, b=block: flood(port, ended, settings, streams(b))
        neighbours["pipelined requests"] = lambda ended: flood(port, ended, b"", pipelined)
        neighbours["followers that do not read"] = lambda ended: follow(port, path, args, ended)
        try:
            times = {name: beside(run, port, args.seconds) for name, run in neighbours.items()}
        finally:
            hotrow.end()
    figures = {
        name: {"p50_ms": t[len(t) // 2], "p99_ms": t[len(t) * 99 // 100], "max_ms": t[-1]}
        for name, t in times.items()
    }
    rows = [[name, *(f"{ms:,.2f} ms" for ms in own.values())] for name, own in figures.items()]
    text = report.table(["beside", "p50", "p99", "max"], rows)
    verdicts = [
        report.verdict(f"p99 beside {name}", own["p99_ms"], P99_MS_AIM, " ms")
        for name, own in figures.items()
    ]
    results = {"settings": vars(args), "times": figures}
    return report.keep("fairness", results, text, verdicts, args.runs)


if __name__ == "__main__":
    cli.run(main)
