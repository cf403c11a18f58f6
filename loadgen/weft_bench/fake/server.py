"""The HTTP server of the mock engine: one `asyncio.Protocol` on httptools.

A connection answers its requests in order. Each part of a streamed answer is written in a separate
turn of the event loop. A proxy thus sees many small reads, as with an engine's steps, and not one
large read.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final, cast

import httptools
import orjson
from weft_engine.wire import CALL_HEADER

from weft_bench.fake import answers
from weft_bench.fake.answers import Answers, Usage
from weft_bench.fake.http import error, json_response, response

_BYTES_PER_TOKEN: Final = 4
_CALL: Final = CALL_HEADER.encode()
_OK: Final = json_response({})
_PLUGIN: Final = json_response({"weft": {"vllm": "mock"}, "engines": []})
_NOT_FOUND: Final = error(404, "Not Found")
_BAD_JSON: Final = error(400, "body is not JSON")


@dataclass(slots=True)
class Engine:
    """The state that all connections share.

    chunks: words of an answer if the call sets no limit. plugin: whether to pose as an engine with
    Weft's plugin, which receives a call's tags and program, and reports on streamed chats.
    """

    model: str
    chunks: int = 50
    plugin: bool = False
    requests: int = 0
    running: int = 0
    aborted: int = 0
    chat: Answers = field(init=False)
    text: Answers = field(init=False)
    models: bytes = field(init=False)

    def __post_init__(self) -> None:
        self.chat = Answers(self.model, chat=True)
        self.text = Answers(self.model, chat=False)
        self.models = answers.models(self.model)

    def get(self, path: bytes) -> bytes:
        """Return the whole response to a GET."""
        if path == b"/health":
            return _OK
        if path == b"/v1/models":
            return self.models
        if path == b"/metrics":
            return self._metrics()
        if path == b"/weft/state" and self.plugin:
            return _PLUGIN
        return _NOT_FOUND

    def post(self, path: bytes, raw: bytes, call: bytes = b"") -> tuple[bytes, ...]:
        """Return the response to a POST, one item per write. call: the gateway's id, b"" if it has
        none.
        """
        shape = {b"/v1/chat/completions": self.chat, b"/v1/completions": self.text}.get(path)
        try:
            body = orjson.loads(raw) if raw else {}
        except orjson.JSONDecodeError:
            return (_BAD_JSON,)
        if not isinstance(body, dict):
            return (_BAD_JSON,)
        if shape is None and not (path == b"/v1/responses" and body.get("stream")):
            return (_NOT_FOUND,)
        return self._complete(shape, len(raw), body, call if self.plugin else b"")

    def _complete(
        self, shape: Answers | None, size: int, body: dict[str, Any], call: bytes
    ) -> tuple[bytes, ...]:
        model = body.get("model")
        if model is not None and model != self.model:
            return (error(404, f"The model `{model}` does not exist."),)
        self.requests += 1
        usage = Usage(size // _BYTES_PER_TOKEN, self._words(body))
        if shape is None:
            return answers.response_events(self.model, usage)
        if not body.get("stream"):
            return (shape.plain(usage),)
        options = body.get("stream_options")
        asked = isinstance(options, dict) and bool(options.get("include_usage"))
        return shape.stream(usage, include_usage=asked, call=call)

    def _words(self, body: dict[str, Any]) -> int:
        limit = body.get("max_completion_tokens") or body.get("max_tokens")
        if not isinstance(limit, int) or limit < 1:
            return self.chunks
        return limit if body.get("ignore_eos") else min(limit, self.chunks)

    def _metrics(self) -> bytes:
        text = "".join(
            f"# TYPE {name} {kind}\n{name} {value}\n"
            for name, kind, value in (
                ("mock_engine_requests_total", "counter", self.requests),
                ("mock_engine_requests_running", "gauge", self.running),
                ("mock_engine_requests_aborted_total", "counter", self.aborted),
            )
        ).encode()
        return response(200, text, kind="text/plain")


class Connection(asyncio.Protocol):
    """One client's connection."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._path = self._call = b""
        self._body: list[bytes] = []
        self._pending: deque[tuple[tuple[bytes, ...], bool]] = deque()
        self._parts: tuple[bytes, ...] = ()
        self._next = 0
        self._keep = True
        self._timer: asyncio.Handle | None = None
        self._writable = True

    # The methods of asyncio.Protocol.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have asyncio's interface but do not derive from its classes.
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

    # The callbacks of httptools.

    def on_message_begin(self) -> None:
        self._path, self._body, self._call = b"", [], b""

    def on_url(self, url: bytes) -> None:
        self._path += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == _CALL:
            self._call = value

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        path = self._path.partition(b"?")[0]
        if self._parser.get_method() == b"POST":
            parts = self._engine.post(path, b"".join(self._body), self._call)
        else:
            parts = (self._engine.get(path),)
        self._pending.append((parts, self._parser.should_keep_alive()))
        if not self._parts:
            self._begin()

    # The answers.

    def _begin(self) -> None:
        self._parts, self._keep = self._pending.popleft()
        self._next = 0
        self._engine.running += 1
        self._step()

    def _step(self) -> None:
        self._timer = None
        if self._transport is None or not self._writable:
            return
        self._transport.write(self._parts[self._next])
        self._next += 1
        if self._next < len(self._parts):
            self._timer = self._loop.call_soon(self._step)
            return
        self._parts = ()
        self._engine.running -= 1
        if not self._keep:
            self._transport.close()
        elif self._pending:
            self._begin()
