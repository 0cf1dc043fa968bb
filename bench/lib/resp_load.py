#!/usr/bin/env python3
"""Load of GETs over RESP3, from connections that track what they read or from others.

redis-benchmark cannot: it sends CLIENT TRACKING before HELLO 3. Prints one object of JSON: requests
and duration_us.
"""

import argparse
import json
import os
import random
import selectors
import socket
import sys
import time

sys.path.insert(0, os.path.realpath(os.path.join(os.path.dirname(__file__), "..")))

from lib import resp  # noqa: E402

TIMEOUT_S = 60


class Client:
    """A connection with at most `depth` commands under way."""

    def __init__(self, port, is_tracking, chosen, depth):
        connection = resp.Connection(port)
        connection.hello()
        if is_tracking:
            connection.ask("CLIENT", "TRACKING", "ON")
        # Nothing follows these replies.
        self.socket = connection.socket
        self.chosen, self.depth = chosen, depth
        self.held, self.expected = b"", 0

    def send(self, count):
        """Sends as many commands as it may, of those that are left. Returns their number."""
        self.expected = min(self.depth, count)
        commands = random.choices(self.chosen, k=self.expected)
        if commands:
            self.socket.sendall(b"".join(commands))
        return self.expected

    def receive(self):
        """Takes what has arrived. Returns whether all replies have."""
        self.held += self.socket.recv(1 << 16)
        at = 0
        while self.expected:
            end = self.held.find(b"\r\n", at)
            if end < 0:
                break
            if self.held[at : at + 1] != b"$":
                raise resp.Failed(f"a reply begins with {self.held[at : at + 40]!r}")
            after = end + 2 + int(self.held[at + 1 : end]) + 2
            if after > len(self.held):
                break
            at, self.expected = after, self.expected - 1
        self.held = self.held[at:]
        return self.expected == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("port", "connections", "depth", "commands", "ids"):
        parser.add_argument(name, type=int)
    parser.add_argument("--tracking", action="store_true")
    args = parser.parse_args()
    chosen = [resp.command("GET", resp.key_of(number)) for number in range(args.ids)]
    selector = selectors.DefaultSelector()
    left = args.commands
    clients = [
        Client(args.port, args.tracking, chosen, args.depth) for _ in range(args.connections)
    ]
    begun = time.monotonic()
    busy = 0
    for client in clients:
        if sent := client.send(left):
            left, busy = left - sent, busy + 1
            selector.register(client.socket, selectors.EVENT_READ, client)
    while busy:
        ready = selector.select(TIMEOUT_S)
        if not ready:
            raise resp.Failed(f"no reply for {TIMEOUT_S} s")
        for key, _ in ready:
            client = key.data
            if not client.receive():
                continue
            if sent := client.send(left):
                left -= sent
            else:
                selector.unregister(client.socket)
                busy -= 1
    duration_us = (time.monotonic() - begun) * 1e6
    json.dump({"requests": args.commands, "duration_us": duration_us}, sys.stdout)


if __name__ == "__main__":
    main()
