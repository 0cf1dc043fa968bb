#!/usr/bin/env python3
"""Makes the profile with which scripts/dist optimises what is released: loads a program that counts
its own branches as its users would, and merges the counts.

    scripts/train.py PROGRAM COUNTS PROFILE

PROGRAM was compiled with -Cprofile-generate=COUNTS. What is loaded often in real use is loaded
often here: records in memory above all, singly and in batches, over each protocol.

Needs llvm-profdata of the compiler (rustup component add llvm-tools) and openssl.
"""

import argparse
import glob
import json
import os
import random
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading

REPOSITORY = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
sys.path.insert(0, os.path.join(REPOSITORY, "bench"))

from lib import data, openssl, subjects  # noqa: E402
from lib.process import Failed, free_port  # noqa: E402

IDS, BODY_BYTES, BATCH = 1_000, 319, 100
ONE_BY_ONE, AT_ONCE = 200_000, 300_000
STREAMS = ["1", "16"]
SOME, BATCHES, COMMANDS, CHANGES = 50_000, 20_000, 5_000, 500
LOAD_TIMEOUT_S = 300
MISSES = ["--ids", f"{2 * IDS}..{3 * IDS}", "--expect-status", "404"]
SECURED = """\
[listen.tls]
cert = "{folder}/cert.pem"
key = "{folder}/key.pem"
[access.roles.reader]
collections = ["products"]
[access.keys.training]
id = "{id}"
sha256 = "{sha256}"
roles = ["reader"]
"""


def profdata():
    """Returns the path of llvm-profdata, which must be of the compiler's version."""
    root = subprocess.run(
        ["rustc", "--print", "sysroot"], capture_output=True, text=True, check=True
    ).stdout.strip()
    found = glob.glob(os.path.join(root, "lib", "rustlib", "*", "bin", "llvm-profdata"))
    if not found:
        raise Failed("missing: llvm-profdata; rustup component add llvm-tools")
    return found[0]


def run(*command):
    done = subprocess.run(command, capture_output=True, timeout=LOAD_TIMEOUT_S)
    if done.returncode != 0:
        output = (done.stdout + done.stderr).decode(errors="replace")
        raise Failed(f"`{' '.join(command)[:300]}` failed:\n{output[-2000:]}")
    return done.stdout


class Trainer:
    """The program, and the folder for its data."""

    def __init__(self, program, folder):
        self.program, self.folder = program, folder
        self.database = os.path.join(folder, "products.db")
        data.generate(self.database, IDS, BODY_BYTES)

    def load(self, requests, *arguments):
        run(self.program, "load", "-t", "1", "-n", str(requests), "--slo", "errors<1", *arguments)

    def serve(self, name, listen="", more=""):
        return subjects.start_hotrow(
            self.folder,
            self.database,
            name=name,
            listen=listen,
            more=more,
            binary=self.program,
        )

    def train(self):
        self.plain()
        self.secured()

    def plain(self):
        redis = free_port()
        listen = f'http2 = true\nredis = "127.0.0.1:{redis}"'
        process = self.serve("plain", listen, subjects.LIMITS)
        try:
            self.load_plain(process.port)
            self.load_redis(redis)
        finally:
            process.end()

    def load_plain(self, port):
        collection = f"http://127.0.0.1:{port}/products"
        one, known = f"{collection}/{{id}}", ["--ids", f"1..{IDS}"]
        self.load(IDS, *known, one)
        self.load(ONE_BY_ONE, *known, one)
        self.load(AT_ONCE, *known, "--pipeline", "16", one)
        self.load(SOME, *known, "-H", "If-None-Match: *", one)
        self.load(SOME, *MISSES, one)
        for streams in STREAMS:
            self.load(SOME, *known, "--http2", "--streams", streams, one)
        choose = random.Random(1)
        batches = [choose.sample(range(1, IDS + 1), BATCH) for _ in range(BATCH)]
        lists = [",".join(map(str, batch)) for batch in batches]
        self.load(BATCHES, *(f"{collection}?ids={ids}" for ids in lists))
        for batch in batches[:10]:
            body = json.dumps({"ids": batch})
            self.load(BATCHES // 10, "--body", body, collection)
        writer = threading.Thread(target=self.change)
        writer.start()
        self.load(SOME, *known, one)
        writer.join()

    def change(self):
        """Changes records, each in a transaction of its own."""
        connection = sqlite3.connect(self.database, isolation_level=None, timeout=30)
        for number in range(CHANGES):
            connection.execute(
                "UPDATE products SET revision = revision + 1 WHERE id = ?", (1 + number % IDS,)
            )
        connection.close()

    def load_redis(self, port):
        """Sends commands, 16 at once."""
        choose = random.Random(2)
        with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
            replies = connection.makefile("rb")
            for _ in range(COMMANDS):
                keys = [f"products:{choose.randint(1, IDS)}" for _ in range(16)]
                commands = (f"*2\r\n$3\r\nGET\r\n${len(key)}\r\n{key}\r\n" for key in keys)
                connection.sendall("".join(commands).encode())
                for _ in keys:
                    head = replies.readline()
                    if not head.startswith(b"$"):
                        raise Failed(f"GET got {head!r}")
                    replies.read(int(head[1:]) + 2)

    def secured(self):
        openssl.make_certificate(self.folder)
        key = json.loads(run(self.program, "key", "new", "--name", "training", "--json"))
        more = SECURED.format(folder=self.folder, id=key["id"], sha256=key["sha256"])
        token = os.path.join(self.folder, "token")
        with open(token, "w") as file:
            file.write(key["key"])
        os.chmod(token, 0o600)
        process = self.serve("secured", "http2 = true", more)
        try:
            one = f"https://127.0.0.1:{process.port}/products/{{id}}"
            common = ["--cacert", f"{self.folder}/cert.pem", "--token-file", token]
            common += ["--ids", f"1..{IDS}", one]
            self.load(IDS, *common)
            self.load(SOME, *common)
            for streams in STREAMS:
                self.load(SOME, "--http2", "--streams", streams, *common)
        finally:
            process.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("program", metavar="PROGRAM")
    parser.add_argument("counts", metavar="COUNTS", help="folder to which PROGRAM writes them")
    parser.add_argument("profile", metavar="PROFILE", help="file to write")
    args = parser.parse_args()
    try:
        tool = profdata()
        # What the compilation itself has counted, in build scripts and macros.
        shutil.rmtree(args.counts, ignore_errors=True)
        os.makedirs(args.counts)
        with tempfile.TemporaryDirectory(prefix="hotrow-train-") as folder:
            Trainer(os.path.realpath(args.program), folder).train()
        counts = sorted(glob.glob(os.path.join(args.counts, "*.profraw")))
        if not counts:
            raise Failed(f"{args.program} has counted nothing; compile it with -Cprofile-generate")
        run(tool, "merge", "--sparse", "-o", args.profile, *counts)
    except Failed as error:
        sys.exit(f"train: {error}")


if __name__ == "__main__":
    main()
