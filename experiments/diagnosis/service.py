"""A small HTTP service for the worked examples of docs/diagnosis.md.

service.py 8080 --database 8081 [--pool 4]       a thread per connection; queries a database over a pool
service.py 8081 --database-ms 5                  the database: answers each line after a delay
service.py 8080 --body-bytes 60000               responds with a text
"""
import argparse, os, queue, random, socket, sys, threading, time

arguments = argparse.ArgumentParser()
arguments.add_argument("port", type=int)
arguments.add_argument("--database", type=int)
arguments.add_argument("--pool", type=int, default=4)
arguments.add_argument("--database-ms", type=float)
arguments.add_argument("--body-bytes", type=int, default=100)
args = arguments.parse_args()

words = random.Random(1)
BODY = " ".join(f"{words.randrange(1 << 12):x}" for _ in range(args.body_bytes)).encode()[: args.body_bytes]
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY
pool = queue.Queue()


def lines(connection, end):
    """Yields the received data, split at each `end`."""
    received = b""
    while more := connection.recv(65536):
        received += more
        while end in received:
            line, received = received.split(end, 1)
            yield line


def database(connection):
    for _ in lines(connection, b"\n"):
        time.sleep(args.database_ms / 1000)
        connection.sendall(b"row\n")


def ask():
    connection = pool.get()
    connection.sendall(b"query\n")
    if not connection.recv(65536):
        print("the database has gone", file=sys.stderr)
        os._exit(1)
    pool.put(connection)


def answer(connection):
    if args.database:
        ask()
    connection.sendall(ANSWER)


def http(connection):
    for _ in lines(connection, b"\r\n\r\n"):
        answer(connection)


def accept():
    connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


listener = socket.create_server(("127.0.0.1", args.port), backlog=1024)
for _ in range(args.pool if args.database else 0):
    pool.put(socket.create_connection(("127.0.0.1", args.database)))
serve = http if args.database_ms is None else database
while True:
    threading.Thread(target=serve, args=(accept(),), daemon=True).start()
