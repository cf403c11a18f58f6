"""An engine process that serves some calls and then kills itself with SIGKILL at a given point.

    python crashing_engine.py LOG POINT WARM

It prints its port. It serves WARM calls, and dies in the next one at POINT. It writes the line
`read` to LOG when it has read the first byte of a call, and the line `id ...` with the call's
`x-request-id` when it has read the head. It does so before anything else.

Points: `head` (the first byte of a call is read), `half_head`, `after_head`, `mid_body`, `asked`
(the whole call is read), `mid_answer_head`, `mid_answer`, `mid_stream`. Three more never kill it:
`never`; `slow` takes some milliseconds for a call; `closes` closes each connection some
milliseconds after an answer.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import sys
import threading
import time

MODELS = b'{"object":"list","data":[{"id":"tiny","object":"model","owned_by":"vllm"}]}'


def more(connection: socket.socket, size: int) -> bytes:
    """Receive some bytes. Raise ConnectionError at the end of the connection."""
    data = connection.recv(size)
    if not data:
        raise ConnectionError
    return data


def die() -> None:
    """End like a crash: no handler runs, and the kernel closes all sockets."""
    os.kill(os.getpid(), signal.SIGKILL)
    signal.pause()


class Engine:
    """One process. calls: number of calls of which it has read at least one byte."""

    def __init__(self, log: str, point: str, warm: int) -> None:
        self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._point = point
        self._warm = warm
        self._lock = threading.Lock()
        self.calls = 0

    def serve(self) -> None:
        """Accept connections until killed."""
        listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        print(listener.getsockname()[1], flush=True)
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=self._connection, args=(connection,), daemon=True).start()

    def _connection(self, connection: socket.socket) -> None:
        with contextlib.suppress(ConnectionError), connection:
            while self._request(connection):
                if self._point == "closes":
                    time.sleep(random.random() * 0.004)
                    break

    def _request(self, connection: socket.socket) -> bool:
        """Serve one request. Return False at the end of the connection."""
        first = connection.recv(1)
        if not first:
            return False
        if first == b"G":
            return self._aside(connection)
        with self._lock:
            self.calls += 1
            fatal = self._point if self.calls > self._warm else ""
            os.write(self._log, b"read\n")
        if fatal == "head":
            die()
        head = first
        while b"\r\n\r\n" not in head:
            head += more(connection, 1 if fatal == "half_head" else 65536)
            if fatal == "half_head" and len(head) > 20:
                die()
        head, _, body = head.partition(b"\r\n\r\n")
        if fatal == "after_head":
            die()
        lines = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
        os.write(self._log, b"id %b\n" % lines.get(b"x-request-id", b""))
        if fatal == "slow":
            time.sleep(random.random() * 0.02)
        length = int(lines[b"content-length"])
        while len(body) < length:
            if fatal == "mid_body" and len(body) > length // 2:
                die()
            body += more(connection, 4096)
        if fatal in ("asked", "mid_body"):
            die()
        if fatal == "mid_answer_head":
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-")
            die()
        if fatal == "mid_answer":
            connection.sendall(b'HTTP/1.1 200 OK\r\ncontent-length: 90\r\n\r\n{"half":')
            die()
        if fatal == "mid_stream":
            connection.sendall(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
                b"transfer-encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n"
            )
            die()
        answer(connection, b'{"ok":true}')
        return True

    def _aside(self, connection: socket.socket) -> bool:
        head = b"G"
        while b"\r\n\r\n" not in head:
            head += more(connection, 65536)
        path = head.split(b" ")[1]
        if path == b"/v1/models":
            answer(connection, MODELS)
        elif path == b"/health":
            answer(connection, b"{}")
        else:
            answer(connection, b"{}", b"404 Not Found")
        return True


def answer(connection: socket.socket, body: bytes, status: bytes = b"200 OK") -> None:
    """Send a complete answer."""
    connection.sendall(
        b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
        % (status, len(body), body)
    )


if __name__ == "__main__":
    Engine(sys.argv[1], sys.argv[2], int(sys.argv[3])).serve()
