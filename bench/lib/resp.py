"""What measurements over the Redis protocol share: keys, a client, redis-benchmark as the load."""

import csv
import json
import socket
import sqlite3
import subprocess
import time

from lib import data, http, subjects
from lib.process import Failed, free_port

CALM_TIMEOUT_S = 30
# redis-benchmark pads its random numbers to so many digits.
DIGITS = 12
KEY = "key:__rand_int__"


def key_of(number):
    """Returns the key that redis-benchmark makes of a number, from 0."""
    return f"key:{number:0{DIGITS}d}"


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


def command(*arguments):
    """Returns a command as clients send it."""
    parts = [b"*%d\r\n" % len(arguments)]
    for argument in arguments:
        argument = argument if isinstance(argument, bytes) else argument.encode()
        parts.append(b"$%d\r\n%s\r\n" % (len(argument), argument))
    return b"".join(parts)


class Connection:
    """A client of its own, so that values are not checked by the program that measures."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        self.file = self.socket.makefile("rb")

    def ask(self, *arguments):
        """Sends a command, and returns the reply: bytes, or None."""
        self.socket.sendall(command(*arguments))
        line = self.file.readline()
        if line.startswith(b"$"):
            length = int(line[1:])
            return self.file.read(length + 2)[:length] if length >= 0 else None
        if line.startswith(b"+"):
            return line[1:-2]
        raise Failed(f"the reply to {arguments[0]} is {line!r}")

    def hello(self):
        """Chooses RESP3."""
        self.socket.sendall(command("HELLO", "3"))
        # Eight pairs: six of texts, two of other values; the last is an empty array.
        line = b""
        while line != b"*0\r\n":
            line = self.file.readline()
            if not line or line.startswith(b"-"):
                raise Failed(f"the reply to HELLO is {line!r}")

    def close(self):
        self.file.close()
        self.socket.close()


def start_hotrow(folder, database):
    """Starts a service whose collection has the keys that redis-benchmark asks for. Returns it and
    its port of the protocol."""
    port = free_port()
    hotrow = subjects.start_hotrow(
        folder,
        database,
        listen=f'redis = "127.0.0.1:{port}"',
        more='[collections.key]\ntable = "key"\nkey = "id"\n',
    )
    return hotrow, port


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
