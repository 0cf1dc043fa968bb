"""A server of Python threads: threads.py PORT single|pool HOW [ARGUMENT].

HOW: `sleep MS`, `cpu MS`, `fsync FOLDER`, or `sql PORT:STATEMENT`, which each thread runs in a
PostgreSQL session of its own. `single` is one thread that serves one connection at a time.
"""

import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer

sys.path.insert(0, os.path.realpath(os.path.join(os.path.dirname(__file__), "..")))

from lib.postgres import Session  # noqa: E402

# Large enough for the disk, not the interpreter, to be the limit.
WRITTEN = b"x" * (4 << 20)

port, form, how, argument = sys.argv[1:5]
local = threading.local()


def sleep():
    time.sleep(float(argument) / 1e3)


def cpu():
    end = time.monotonic() + float(argument) / 1e3
    while time.monotonic() < end:
        pass


def fsync():
    if not hasattr(local, "file"):
        path = os.path.join(argument, str(threading.get_ident()))
        local.file = os.open(path, os.O_CREAT | os.O_RDWR)
    os.pwrite(local.file, WRITTEN, 0)
    os.fsync(local.file)


def sql():
    server, statement = argument.split(":", 1)
    if not hasattr(local, "session"):
        local.session = Session(int(server))
    local.session.run(statement)


work = {"sleep": sleep, "cpu": cpu, "fsync": fsync, "sql": sql}[how]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0" if form == "single" else "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self):
        work()
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_):
        pass


server = HTTPServer if form == "single" else ThreadingHTTPServer
server.request_queue_size = 128
server(("127.0.0.1", int(port)), Handler).serve_forever()
