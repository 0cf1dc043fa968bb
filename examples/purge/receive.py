#!/usr/bin/env python3
"""Receiver of Hotrow's purge webhooks: docs/purging.md.

HOTROW_PURGE_SECRET=… receive.py PORT prints each surrogate key. In your own program, call `verify`
before you use a body, and pass the keys on to the interface of your CDN.
"""

import hashlib
import hmac
import http.server
import json
import os
import sys
import time

# A request that was recorded and is sent again later is refused.
AGE_MAX_S = 300
BODY_BYTES_MAX = 1 << 20


def verify(secret: bytes, signature: str, body: bytes, now: float) -> bool:
    """Returns whether `Hotrow-Signature` fits the body and is recent."""
    try:
        fields = dict(field.split("=", 1) for field in signature.split(","))
        sent_at, given = int(fields["t"]), fields["v1"]
    except (KeyError, ValueError):
        return False
    expected = hmac.new(secret, b"%d." % sent_at + body, hashlib.sha256).hexdigest()
    return hmac.compare_digest(expected, given) and abs(now - sent_at) <= AGE_MAX_S


class Receiver(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    secret = os.environ.get("HOTROW_PURGE_SECRET", "").encode()

    def do_POST(self):
        length = int(self.headers.get("Content-Length", 0))
        if length > BODY_BYTES_MAX:
            return self.answer(413)
        body = self.rfile.read(length)
        signature = self.headers.get("Hotrow-Signature", "")
        if not verify(self.secret, signature, body, time.time()):
            return self.answer(401)
        for purge in json.loads(body)["purges"]:
            print(purge["surrogate_key"], purge["position"], flush=True)
        # Hotrow sends the body again until the status is 2xx.
        self.answer(204)

    def answer(self, status):
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    if len(sys.argv) != 2 or not Receiver.secret:
        sys.exit("usage: HOTROW_PURGE_SECRET=… receive.py PORT")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Receiver)
    server.serve_forever()
