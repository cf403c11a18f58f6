"""The mock engine's HTTP side: one `asyncio.Protocol` on httptools, nothing between.

A connection answers its requests in order. Each part of a streamed answer is written in its own
turn of the event loop (or every `interval_s`), as an engine's steps are, so that a proxy sees
many small reads and not one large one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final, cast

import httptools
import orjson

from engine_patches.wire import CALL_HEADER
from loadgen.mock_engine import answers
from loadgen.mock_engine.accounting import Accounting
from loadgen.mock_engine.answers import Answers

_CALL_HEADER: Final = CALL_HEADER.encode()
_OK: Final = answers.http(b"200 OK", b"{}")
_NOT_FOUND: Final = answers.error(b"404 Not Found", "Not Found", "NotFoundError")
_BAD_JSON: Final = answers.error(b"400 Bad Request", "body is not JSON", "BadRequestError")


@dataclass(slots=True)
class Engine:
    """What all connections share. `weft`: speak Weft's report channel and policy endpoint, as an
    engine with the plugin does. first_s: wait before an answer's first byte, seconds."""

    model: str
    chunks: int = 50
    interval_s: float = 0.0
    first_s: float = 0.0
    max_model_len: int = 4096
    weft: bool = False
    requests: int = 0
    running: int = 0
    aborted: int = 0
    accounting: Accounting = field(init=False)
    chat: Answers = field(init=False)
    text: Answers = field(init=False)
    models: bytes = field(init=False)

    def __post_init__(self) -> None:
        self.accounting = Accounting(self.chunks)
        self.chat = Answers(self.model, chat=True)
        self.text = Answers(self.model, chat=False)
        self.models = answers.models(self.model, self.max_model_len)

    def get(self, path: bytes) -> bytes:
        """The whole response to a GET."""
        if path == b"/health":
            return _OK
        if path == b"/v1/models":
            return self.models
        if path == b"/metrics":
            return self._metrics()
        if path == b"/weft/state" and self.weft:
            state = {"policy": self.accounting.policy, "running": self.running, "waiting": 0}
            return answers.http(
                b"200 OK", orjson.dumps({"weft": {"mock": True}, "engines": [state]})
            )
        return _NOT_FOUND

    def post(self, path: bytes, call: str, raw: bytes) -> tuple[bytes, ...]:
        """The response to a POST, one item per write."""
        shape = {b"/v1/chat/completions": self.chat, b"/v1/completions": self.text}.get(path)
        try:
            body = orjson.loads(raw) if raw else {}
        except orjson.JSONDecodeError:
            return (_BAD_JSON,)
        if not isinstance(body, dict):
            return (_BAD_JSON,)
        if shape is not None:
            return self._complete(shape, call, body)
        if path == b"/weft/policy" and self.weft:
            return (self._policy(body),)
        return (_NOT_FOUND,)

    def _complete(self, shape: Answers, call: str, body: dict[str, Any]) -> tuple[bytes, ...]:
        model = body.get("model")
        if model is not None and model != self.model:
            message = f"The model `{model}` does not exist."
            return (answers.error(b"404 Not Found", message, "NotFoundError"),)
        self.requests += 1
        usage = self.accounting.count(body)
        report = self.accounting.report(call, usage, body) if self.weft else None
        if not body.get("stream"):
            return (shape.plain(usage, report),)
        options = body.get("stream_options")
        asked = isinstance(options, dict) and bool(options.get("include_usage"))
        return shape.stream(usage, report, include_usage=asked)

    def _policy(self, body: dict[str, Any]) -> bytes:
        policy = body.get("policy")
        if not isinstance(policy, str) or not policy:
            return answers.error(b"400 Bad Request", "policy: a name is needed", "BadRequestError")
        self.accounting.set_policy(policy, reset_cache=bool(body.get("reset_cache")))
        return answers.http(b"200 OK", orjson.dumps({"policy": policy}))

    def _metrics(self) -> bytes:
        text = "".join(
            f"# TYPE {name} {kind}\n{name} {value}\n"
            for name, kind, value in (
                ("mock_engine_requests_total", "counter", self.requests),
                ("mock_engine_requests_running", "gauge", self.running),
                ("mock_engine_requests_aborted_total", "counter", self.aborted),
            )
        ).encode()
        return answers.http(b"200 OK", text).replace(b"application/json", b"text/plain", 1)


class Connection(asyncio.Protocol):
    """One client's connection."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._path = b""
        self._call = ""
        self._body: list[bytes] = []
        self._pending: deque[tuple[tuple[bytes, ...], bool]] = deque()
        self._parts: tuple[bytes, ...] = ()
        self._next = 0
        self._keep = True
        self._timer: asyncio.Handle | None = None
        self._writable = True

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not asyncio's classes, only like them.
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._parts:
            self._parts = ()
            self._engine.running -= 1
            self._engine.aborted += 1
        self._pending.clear()
        self._transport = None

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            if self._transport is not None:
                self._transport.close()

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        if self._parts and self._timer is None:
            self._step()

    # httptools

    def on_message_begin(self) -> None:
        self._path, self._call, self._body = b"", "", []

    def on_url(self, url: bytes) -> None:
        self._path += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == _CALL_HEADER:
            self._call = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        path = self._path.partition(b"?")[0]
        if self._parser.get_method() == b"POST":
            parts = self._engine.post(path, self._call, b"".join(self._body))
        else:
            parts = (self._engine.get(path),)
        self._pending.append((parts, self._parser.should_keep_alive()))
        if not self._parts:
            self._begin()

    # answers

    def _begin(self) -> None:
        self._parts, self._keep = self._pending.popleft()
        self._next = 0
        self._engine.running += 1
        if self._engine.first_s > 0:
            self._timer = self._loop.call_later(self._engine.first_s, self._step)
        else:
            self._step()

    def _step(self) -> None:
        self._timer = None
        if self._transport is None or not self._writable:
            return
        self._transport.write(self._parts[self._next])
        self._next += 1
        if self._next < len(self._parts):
            interval = self._engine.interval_s
            self._timer = (
                self._loop.call_later(interval, self._step)
                if interval > 0
                else self._loop.call_soon(self._step)
            )
            return
        self._parts = ()
        self._engine.running -= 1
        if not self._keep:
            self._transport.close()
        elif self._pending:
            self._begin()
