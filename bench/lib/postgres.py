"""Private PostgreSQL server with the table `products`, and a client for the needed part of its
protocol.
"""

import glob
import os
import pwd
import shutil
import signal
import socket
import struct
import subprocess
import time

from lib import data, process
from lib.process import Failed, Process, free_port

COLUMNS = (
    "id integer PRIMARY KEY, sku text NOT NULL, name text NOT NULL, category text NOT NULL,"
    " price_cents integer NOT NULL,"
    " stock integer NOT NULL, revision integer NOT NULL, description text NOT NULL"
)
# Settings for logical replication, with the data in memory. Commits are flushed to disk.
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "wal_level": "logical",
    "shared_buffers": "1GB",
    "max_wal_size": "4GB",
    "checkpoint_timeout": "30min",
    "dynamic_shared_memory_type": "mmap",
}
PROTOCOL_3 = 196_608
TIMEOUT_S = 60


def _folder():
    """Returns the folder of the newest version's programs."""
    found = sorted(
        glob.glob("/usr/lib/postgresql/*/bin/initdb"), key=lambda path: int(path.split("/")[4])
    )
    path = found[-1] if found else shutil.which("initdb")
    if not path:
        raise Failed(
            "there is no PostgreSQL: initdb is neither in PATH nor in /usr/lib/postgresql/*/bin"
        )
    return os.path.dirname(os.path.realpath(path))


def _as_owner():
    """Returns the prefix of a command that runs it as an unprivileged user, because the server
    refuses root.
    """
    if os.geteuid() != 0:
        return []
    return ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]


class Server(Process):
    """Server in a folder of its own below `folder`; `url` is the superuser's."""

    def __init__(self, folder, settings=None, core="0-1"):
        os.chmod(folder, 0o711)  # the server's user needs access
        place = os.path.join(folder, "postgresql")
        os.mkdir(place)
        if os.geteuid() == 0:
            owner = pwd.getpwnam("postgres")
            os.chown(place, owner.pw_uid, owner.pw_gid)
        programs, place_of_data = _folder(), os.path.join(place, "data")
        made = subprocess.run(
            [
                *_as_owner(),
                os.path.join(programs, "initdb"),
                "--auth=trust",
                "--username=postgres",
                "--encoding=UTF8",
                "--locale=C",
                "--no-sync",
                "--pgdata",
                place_of_data,
            ],
            capture_output=True,
            text=True,
            cwd="/",
        )
        if made.returncode != 0:
            raise Failed(f"initdb failed:\n{made.stderr[-2000:]}")
        port = free_port()
        self.settings = {**SETTINGS, **(settings or {})}
        with open(os.path.join(place_of_data, "postgresql.conf"), "a") as file:
            for name, value in {
                **self.settings,
                "port": port,
                "unix_socket_directories": place,
            }.items():
                file.write(f"{name} = '{value}'\n")
        command = [*_as_owner(), os.path.join(programs, "postgres"), "-D", place_of_data]
        super().__init__("postgresql", command, port, folder, core)
        self.url = f"postgres://postgres@127.0.0.1:{port}/postgres"
        self._await_sessions()

    def _await_sessions(self):
        """Waits for sessions, which the server accepts only after it listens."""
        deadline = time.monotonic() + process.START_TIMEOUT_S
        while True:
            try:
                with Session(self.port):
                    return
            except Failed as failure:
                if time.monotonic() > deadline:
                    self.end()
                    raise Failed(f"PostgreSQL takes no sessions: {failure}") from None
                time.sleep(0.02)

    def load_products(self, count, body_bytes):
        rows = (
            "\t".join(str(value) for value in data.product(number, body_bytes))
            for number in range(1, count + 1)
        )
        with Session(self.port) as session:
            session.run(f"CREATE TABLE products ({COLUMNS})")
            session.copy("COPY products FROM STDIN", rows)
            session.run("VACUUM (ANALYZE, FREEZE) products")
            session.run("CHECKPOINT")

    def backends(self, condition):
        """Returns the process ids of sessions selected by a condition on pg_stat_activity."""
        with Session(self.port) as session:
            rows = session.run(
                f"SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND ({condition})"
            )
        return [int(row[0]) for row in rows]

    def cpu_ns(self):
        # The first process accumulates the CPU time of ended sessions, in ticks.
        with open(f"/proc/{self.pid}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        ended_s = (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")
        return super().cpu_ns() + int(ended_s * 1e9)

    def end(self):
        # SIGINT is a fast, orderly shutdown; SIGTERM would wait for every session to end.
        if self.child.poll() is None:
            self.resume()
            self.child.send_signal(signal.SIGINT)
            try:
                self.child.wait(process.STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.child.kill()
                self.child.wait()


class Session:
    """Connection without a password that runs simple queries."""

    def __init__(self, port, user="postgres", database="postgres"):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.held = b""
        words = [
            b"user",
            user.encode(),
            b"database",
            database.encode(),
            b"application_name",
            b"bench",
            b"",
        ]
        body = struct.pack("!I", PROTOCOL_3) + b"\0".join(words) + b"\0"
        self.socket.sendall(struct.pack("!I", len(body) + 4) + body)
        self._until_ready()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def run(self, sql):
        """Returns the rows of all statements, each a list of texts or None."""
        self._send(b"Q", sql.encode() + b"\0")
        return self._until_ready()

    def copy(self, sql, lines):
        """Runs a COPY … FROM STDIN with these lines."""
        self._send(b"Q", sql.encode() + b"\0")
        kind, body = self._message()
        if kind != b"G":
            raise Failed(f"{sql}: PostgreSQL says {body!r}")
        piece = []
        for line in lines:
            piece.append(line)
            if len(piece) == 1_000:
                self._send(b"d", ("\n".join(piece) + "\n").encode())
                piece = []
        self._send(b"d", "".join(line + "\n" for line in piece).encode())
        self._send(b"c", b"")
        self._until_ready()

    def _send(self, kind, body):
        self.socket.sendall(kind + struct.pack("!I", len(body) + 4) + body)

    def _read(self, count):
        while len(self.held) < count:
            got = self.socket.recv(1 << 16)
            if not got:
                raise Failed("PostgreSQL closed the connection")
            self.held += got
        taken, self.held = self.held[:count], self.held[count:]
        return taken

    def _message(self):
        head = self._read(5)
        return head[:1], self._read(struct.unpack("!I", head[1:])[0] - 4)

    def _until_ready(self):
        rows, failure = [], None
        while True:
            kind, body = self._message()
            if kind == b"D":
                rows.append(self._row(body))
            elif kind == b"E":
                failure = body.replace(b"\0", b" ").decode(errors="replace")
            elif kind == b"R" and struct.unpack("!I", body[:4])[0] != 0:
                raise Failed("PostgreSQL wants a password, and this client knows none")
            elif kind == b"Z":
                if failure:
                    raise Failed(f"PostgreSQL says: {failure}")
                return rows
            if kind == b"E" and failure and "FATAL" in failure:
                raise Failed(f"PostgreSQL says: {failure}")

    @staticmethod
    def _row(body):
        (count,), at, row = struct.unpack("!H", body[:2]), 2, []
        for _ in range(count):
            (length,) = struct.unpack("!i", body[at : at + 4])
            at += 4
            row.append(None if length < 0 else body[at : at + length].decode())
            at += max(length, 0)
        return row
