"""An HTTP server with scripted answers that records requests, for tests of clients.

It runs in separate threads, so that tests can use blocking clients too.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from support.waiting import DEADLINE_S


@dataclass(frozen=True)
class Asked:
    """One request."""

    method: str
    path: str
    headers: dict[str, str]
    json: Any


# A status, a body and further headers, or the frames of a stream. A frame is sent when the iterator
# yields it.
Answer = tuple[int, Any] | tuple[int, Any, dict[str, str]] | Iterable[bytes]


@dataclass
class ScriptedServer:
    """A scripted server. answer: returns the answer to a request. asked: all requests, in order."""

    answer: Callable[[Asked], Answer]
    url: str = ""
    asked: list[Asked] = field(default_factory=list)
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def to(self, method: str, path: str) -> list[Asked]:
        """Return the requests of a method whose path ends in `path`."""
        return [a for a in list(self.asked) if a.method == method and a.path.endswith(path)]

    def wait_for(self, method: str, path: str, times: int = 1) -> None:
        """Wait, with a deadline, until a request was made `times` times."""
        with self._changed:
            done = self._changed.wait_for(lambda: len(self.to(method, path)) >= times, DEADLINE_S)
        assert done, f"{method} {path} was not asked {times} times"

    def record(self, asked: Asked) -> None:
        """Record a request, and wake waiting threads."""
        with self._changed:
            self.asked.append(asked)
            self._changed.notify_all()


@contextmanager
def scripted(answer: Callable[[Asked], Answer], port: int = 0) -> Iterator[ScriptedServer]:
    """Run a server. port: 0 for a free one."""
    script = ScriptedServer(answer)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            raw = self.rfile.read(int(self.headers.get("content-length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            asked = Asked(self.command, self.path, headers, json.loads(raw) if raw else None)
            script.record(asked)
            answered = script.answer(asked)
            if isinstance(answered, tuple):
                self._plain(*answered)
            else:
                self._stream(answered)

        do_GET = do_POST = do_DELETE = handle_any

        def _plain(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
            raw = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(raw)))
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(raw)

        def _stream(self, frames: Iterable[bytes]) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            try:
                for frame in frames:
                    self.wfile.write(b"%x\r\n%b\r\n" % (len(frame), frame))
                    self.wfile.flush()
                self.wfile.write(b"0\r\n\r\n")
            except (ConnectionError, EOFError):  # A script raises EOFError to break off.
                self.close_connection = True

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    script.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield script
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def frame(delta: dict[str, Any], finish: str | None = None) -> bytes:
    """Return a frame of a chat stream."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "tiny"}
    return f"data: {json.dumps(chunk | {'choices': [choice]})}\n\n".encode()


def call_frames(index: int, name: str, arguments: str) -> Iterator[bytes]:
    """Return the frames of one tool call, with its arguments in two pieces."""
    head = {"index": index, "id": f"call-{index}", "type": "function"}
    yield frame({"tool_calls": [head | {"function": {"name": name, "arguments": ""}}]})
    middle = len(arguments) // 2
    for piece in (arguments[:middle], arguments[middle:]):
        yield frame({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})


def answer_frames(text: str) -> list[bytes]:
    """Return the frames of an answer without tool calls."""
    return [frame({"role": "assistant", "content": text}), frame({}, "stop"), DONE]


CALLED = frame({}, "tool_calls")
DONE = b"data: [DONE]\n\n"
