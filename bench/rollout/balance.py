#!/usr/bin/env python3
"""Balance of connections among workers: a socket per worker against one socket shared by all.

Starts `hotrow serve` on its own sockets, then with one socket passed as a service manager
passes it, and opens connections that each send one request and stay open. Counts them by worker:
the descriptors in the epoll instance of each worker's thread. Then measures new connections per
second, with one request each.
"""

import argparse
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time

REQUEST = b"GET /products/1 HTTP/1.1\r\nHost: h\r\n\r\n"
CLOSING = b"GET /products/1 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"


def start(binary, workers, listener):
    folder = tempfile.mkdtemp()
    database = os.path.join(folder, "demo.db")
    import sqlite3
    with sqlite3.connect(database) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE products(id INTEGER PRIMARY KEY, name TEXT)")
        connection.execute("INSERT INTO products VALUES (1, 'a')")
    config = os.path.join(folder, "hotrow.toml")
    with open(config, "w") as file:
        file.write(f'[listen]\ndata = "127.0.0.1:0"\nadmin = "127.0.0.1:0"\nworkers = {workers}\n'
                   f'[source]\nurl = "sqlite:{database}"\nwatch = "none"\n[collections.products]\n')
    environment = dict(os.environ)
    command = [binary, "serve", "--config", config]
    stdin = subprocess.DEVNULL
    if listener:
        environment["LISTEN_FDNAMES"] = "data"
        script = 'LISTEN_PID=$$ LISTEN_FDS=1 exec "$0" "$@" 3<&0 </dev/null'
        command = ["sh", "-c", script] + command
        stdin = listener
    process = subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, env=environment, text=True)
    for line in process.stdout:
        found = re.search(r"records on http://([\d.]+):(\d+)", line)
        if found:
            return process, (found[1], int(found[2]))
    raise SystemExit("the service did not start")


def by_worker(pid, port):
    """Counts the connections to `port` in each epoll instance."""
    inodes = set()
    with open(f"/proc/{pid}/net/tcp") as file:
        for line in file.readlines()[1:]:
            fields = line.split()
            if int(fields[1].split(":")[1], 16) == port and fields[3] == "01":
                inodes.add(fields[9])
    instances = set()
    folder = f"/proc/{pid}/fd"
    sockets = {}
    for descriptor in os.listdir(folder):
        target = os.readlink(f"{folder}/{descriptor}")
        found = re.fullmatch(r"socket:\[(\d+)\]", target)
        if found and found[1] in inodes:
            sockets[descriptor] = found[1]
    for descriptor in os.listdir(folder):
        if "eventpoll" not in os.readlink(f"{folder}/{descriptor}"):
            continue
        with open(f"/proc/{pid}/fdinfo/{descriptor}") as file:
            watched = set(re.findall(r"^tfd:\s+(\d+)", file.read(), re.M))
        # A runtime holds its instance by two descriptors, which watch the same.
        instances.add(frozenset(watched & set(sockets)))
    return sorted(len(instance) for instance in instances if instance)


def measure(binary, workers, connections, seconds, is_shared):
    listener = None
    if is_shared:
        listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
    process, address = start(binary, workers, listener)
    try:
        kept = []
        for _ in range(connections):
            client = socket.create_connection(address)
            client.sendall(REQUEST)
            client.recv(4096)
            kept.append(client)
        counts = by_worker(process.pid, address[1])
        for client in kept:
            client.close()
        done = [0] * 4
        until = time.monotonic() + seconds

        def ask(index):
            while time.monotonic() < until:
                with socket.create_connection(address) as client:
                    client.sendall(CLOSING)
                    while client.recv(4096):
                        pass
                done[index] += 1

        threads = [threading.Thread(target=ask, args=(index,)) for index in range(len(done))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return {"shared": is_shared, "connections_by_worker": counts,
                "new_connections_per_s": round(sum(done) / seconds)}
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--connections", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=5)
    arguments = parser.parse_args()
    for is_shared in (False, True):
        result = measure(arguments.binary, arguments.workers, arguments.connections,
                         arguments.seconds, is_shared)
        print(json.dumps(result))


if __name__ == "__main__":
    main()
