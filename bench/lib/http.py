"""Small HTTP/1.1 client on a raw socket, which keeps the bytes of an answer as they were sent."""

import socket
from dataclasses import dataclass

TIMEOUT_S = 30


@dataclass
class Answer:
    status: int
    head: bytes  # from the status line to the empty line
    body: bytes

    def header(self, name):
        for line in self.head.split(b"\r\n")[1:]:
            key, _, value = line.partition(b":")
            if key.strip().lower() == name.lower().encode():
                return value.strip().decode()
        return None

    def names(self):
        lines = [line for line in self.head.split(b"\r\n")[1:] if line]
        return sorted(line.partition(b":")[0].lower().decode() for line in lines)


class Connection:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.held = b""

    def close(self):
        self.socket.close()

    def _more(self):
        got = self.socket.recv(1 << 18)
        if not got:
            raise ConnectionError("the server closed the connection in the middle of an answer")
        return got

    def get(self, path, extra=""):
        return self.exchange(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{extra}\r\n".encode())

    def post(self, path, body):
        head = (
            f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        return self.exchange(head.encode() + body)

    def exchange(self, request):
        self.socket.sendall(request)
        while (end := self.held.find(b"\r\n\r\n")) < 0:
            self.held += self._more()
        head, rest = self.held[: end + 4], self.held[end + 4 :]
        answer = Answer(int(head.split(b" ", 2)[1]), head, b"")
        if (answer.header("transfer-encoding") or "").lower() == "chunked":
            answer.body = self._chunks(rest)
            return answer
        length = int(answer.header("content-length") or 0)
        parts, have = [rest], len(rest)
        while have < length:
            parts.append(self._more())
            have += len(parts[-1])
        rest = b"".join(parts)
        answer.body, self.held = rest[:length], rest[length:]
        return answer

    def _chunks(self, rest):
        body = b""
        while True:
            while (end := rest.find(b"\r\n")) < 0:
                rest += self._more()
            length = int(rest[:end].split(b";")[0], 16)
            while len(rest) < end + 4 + length:
                rest += self._more()
            body += rest[end + 2 : end + 2 + length]
            rest = rest[end + 4 + length :]
            if length == 0:
                self.held = rest
                return body
