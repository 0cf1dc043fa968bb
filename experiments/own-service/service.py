#!/usr/bin/env python3
"""A service of your own, in 20 lines of the standard library. Usage: service.py PORT"""
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Service(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # keep-alive
    wbufsize = -1                  # one packet per response instead of two
    served, lock = 0, threading.Lock()

    def do_GET(self):
        if self.path == "/hello":
            with Service.lock:
                Service.served += 1
        known = {"/hello": "hello world", "/served": str(Service.served), "/healthz": "ok"}
        body = known.get(self.path, "there is no such page").encode()
        self.send_response(200 if self.path in known else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass

ThreadingHTTPServer.daemon_threads = True
ThreadingHTTPServer.request_queue_size = 128
ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Service).serve_forever()
