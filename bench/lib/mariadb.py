"""Private MariaDB server with the table `products`, and a client for the needed part of its
protocol.
"""

import os
import pwd
import shutil
import socket
import struct
import subprocess
import time

from lib import data, process
from lib.process import Failed, Process, free_port

COLUMNS = (
    "id INT PRIMARY KEY, sku VARCHAR(64) NOT NULL, name VARCHAR(128) NOT NULL,"
    " category VARCHAR(64) NOT NULL, price_cents INT NOT NULL, stock INT NOT NULL,"
    " revision INT NOT NULL, description TEXT NOT NULL"
)
# Settings for a change feed, with the data in memory.
SETTINGS = {
    "log-bin": "binlog",
    "server-id": "1",
    "binlog-format": "ROW",
    "binlog-row-metadata": "FULL",
    "innodb-buffer-pool-size": "1G",
    "innodb-log-file-size": "1G",
    "skip-name-resolve": "ON",
}
TIMEOUT_S = 60
ROWS_AT_ONCE = 500


def _program(*names):
    for name in names:
        path = shutil.which(name) or next(
            (p for p in [f"/usr/sbin/{name}"] if os.access(p, os.X_OK)), None
        )
        if path:
            return path
    raise Failed(f"there is no MariaDB: {names[0]} is not in PATH")


def _as_owner():
    """Returns the prefix of a command that runs it as an unprivileged user, because the server
    refuses root.
    """
    if os.geteuid() != 0:
        return []
    return ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]


class Server(Process):
    """Server in a folder of its own below `folder`."""

    def __init__(self, folder, settings=None, core="0-1"):
        os.chmod(folder, 0o711)  # the server's user needs access
        place = os.path.join(folder, "mariadb")
        os.mkdir(place)
        if os.geteuid() == 0:
            owner = pwd.getpwnam("nobody")
            os.chown(place, owner.pw_uid, owner.pw_gid)
        place_of_data, self.socket = os.path.join(place, "data"), os.path.join(place, "s")
        made = subprocess.run(
            [
                *_as_owner(),
                _program("mariadb-install-db", "mysql_install_db"),
                "--no-defaults",
                f"--datadir={place_of_data}",
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
            ],
            capture_output=True,
            text=True,
            cwd="/",
        )
        if made.returncode != 0:
            raise Failed(f"mariadb-install-db failed:\n{made.stderr[-2000:]}")
        self.settings = {**SETTINGS, **(settings or {})}
        port = free_port()
        command = [
            *_as_owner(),
            _program("mariadbd", "mysqld"),
            "--no-defaults",
            f"--datadir={place_of_data}",
            f"--socket={self.socket}",
            f"--port={port}",
            "--bind-address=127.0.0.1",
            *(f"--{name}={value}" for name, value in self.settings.items()),
        ]
        super().__init__("mariadb", command, port, folder, core)
        self._await_sessions()

    def _await_sessions(self):
        deadline = time.monotonic() + process.START_TIMEOUT_S
        while True:
            try:
                with Session(self.port):
                    return
            except (Failed, OSError) as failure:
                if time.monotonic() > deadline:
                    self.end()
                    raise Failed(f"MariaDB takes no sessions: {failure}") from None
                time.sleep(0.02)

    def load_products(self, count, body_bytes):
        with Session(self.port) as session:
            session.run("CREATE DATABASE shop")
            session.run(f"CREATE TABLE shop.products ({COLUMNS}) ENGINE=InnoDB")
            rows = [data.product(number, body_bytes) for number in range(1, count + 1)]
            for at in range(0, count, ROWS_AT_ONCE):
                values = ",".join(
                    "(" + ",".join(_literal(v) for v in row) + ")"
                    for row in rows[at : at + ROWS_AT_ONCE]
                )
                session.run(f"INSERT INTO shop.products VALUES {values}")
            for user in ["reader", "feed"]:
                session.run(f"CREATE USER {user}@'%'")
                session.run(f"GRANT SELECT ON shop.* TO {user}@'%'")
                session.run(
                    f"GRANT REPLICATION SLAVE, REPLICATION CLIENT, SLAVE MONITOR ON *.* TO "
                    f"{user}@'%'"
                )

    def url(self, user):
        return f"mysql://{user}@127.0.0.1:{self.port}/shop"

    def threads_of(self, user):
        """Returns (thread, command) of the user's sessions."""
        with Session(self.port) as session:
            rows = session.run(
                f"SELECT TID, COMMAND FROM information_schema.PROCESSLIST WHERE USER = '{user}'"
            )
        return [(int(thread), command) for thread, command in rows]

    def thread_cpu_ns(self, thread):
        with open(f"/proc/{self.pid}/task/{thread}/schedstat") as file:
            return int(file.read().split()[0])


def _literal(value):
    if isinstance(value, int):
        return str(value)
    return "'" + str(value).replace("\\", "\\\\").replace("'", "\\'") + "'"


class Session:
    """Connection without a password that runs text queries."""

    def __init__(self, port, user="root"):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.held = b""
        self._packet()
        # CLIENT_PROTOCOL_41, CLIENT_TRANSACTIONS, CLIENT_SECURE_CONNECTION and CLIENT_PLUGIN_AUTH;
        # no password.
        flags = 0x200 | 0x2000 | 0x8000 | 0x80000
        answer = (
            struct.pack("<IIB23x", flags, 1 << 24, 45)
            + user.encode()
            + b"\0\0mysql_native_password\0"
        )
        self._send(1, answer)
        self._fine(self._packet())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def run(self, sql):
        """Returns the rows of one statement, each a list of texts or None."""
        self._send(0, b"\x03" + sql.encode())
        first = self._packet()
        if first[0] in (0x00, 0xFF):
            self._fine(first)
            return []
        for _ in range(first[0] + 1):  # the columns and the end packet
            self._packet()
        rows = []
        while True:
            packet = self._packet()
            if packet[0] == 0xFE and len(packet) < 9:
                return rows
            self._fine(packet, 0xFF)
            rows.append(self._row(packet))

    def _fine(self, packet, bad=None):
        if packet[0] == 0xFF or (bad is None and packet[0] != 0x00):
            raise Failed(f"MariaDB says: {packet[1:].decode(errors='replace')}")

    def _send(self, number, body):
        self.socket.sendall(struct.pack("<I", len(body))[:3] + bytes([number]) + body)

    def _packet(self):
        head = self._read(4)
        return self._read(int.from_bytes(head[:3], "little"))

    def _read(self, count):
        while len(self.held) < count:
            got = self.socket.recv(1 << 16)
            if not got:
                raise Failed("MariaDB closed the connection")
            self.held += got
        taken, self.held = self.held[:count], self.held[count:]
        return taken

    @staticmethod
    def _row(packet):
        at, row = 0, []
        while at < len(packet):
            length, width = packet[at], 1
            if length == 0xFB:
                row.append(None)
                at += 1
                continue
            if length >= 0xFC:
                width = {0xFC: 3, 0xFD: 4, 0xFE: 9}[length]
                length = int.from_bytes(packet[at + 1 : at + width], "little")
            row.append(packet[at + width : at + width + length].decode())
            at += width + length
        return row
