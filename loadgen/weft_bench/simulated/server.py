"""The HTTP server of a simulated replica: one `asyncio.Protocol` on httptools.

A connection answers its requests in order.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final, cast

import httptools
import orjson
from weft_engine.wire import CALL_HEADER

from weft_bench.simulated import http
from weft_bench.simulated.admin import SECRET_HEADER, Admin
from weft_bench.simulated.answering import Answering
from weft_bench.simulated.dialects import DIALECTS, Refused
from weft_bench.simulated.faults import FAULT_HEADER
from weft_bench.simulated.service import Service
from weft_bench.simulated.tokens import TOKEN_BYTES

logger = logging.getLogger(__name__)

_MESSAGES: Final = b"/v1/messages"
_COUNT: Final = _MESSAGES + b"/count_tokens"

_KEPT_HEADERS: Final = frozenset({CALL_HEADER.encode(), FAULT_HEADER.encode(), SECRET_HEADER})


@dataclass(slots=True)
class _Request:
    method: bytes = b""
    url: bytes = b""
    headers: dict[bytes, bytes] = field(default_factory=dict)
    parts: list[bytes] = field(default_factory=list)
    keep: bool = True

    def header(self, name: str) -> str:
        return self.headers.get(name.encode(), b"").decode("latin-1")


class Connection(asyncio.Protocol):
    """One client's connection."""

    def __init__(self, service: Service, admin: Admin) -> None:
        self._service = service
        self._admin = admin
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._request = _Request()
        self._pending: deque[_Request] = deque()
        self._current: Answering | None = None
        self._keep = True

    # The methods of asyncio.Protocol.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have asyncio's interface but do not derive from its classes.
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._pending.clear()
        current, self._current = self._current, None
        if current is not None:
            current.gone()

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            # The parser also wraps errors of callbacks in this exception.
            logger.warning("connection closed: %r", error.__context__ or error)
            self.close()

    def pause_writing(self) -> None:
        if self._current is not None:
            self._current.pause()

    def resume_writing(self) -> None:
        if self._current is not None:
            self._current.resume()

    # The callbacks of httptools.

    def on_message_begin(self) -> None:
        self._request = _Request()

    def on_url(self, url: bytes) -> None:
        self._request.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name in _KEPT_HEADERS:
            self._request.headers[name] = value

    def on_body(self, body: bytes) -> None:
        self._request.parts.append(body)

    def on_message_complete(self) -> None:
        self._request.method = self._parser.get_method()
        self._request.keep = self._parser.should_keep_alive()
        self._pending.append(self._request)
        if self._current is None:
            self._next()

    # The methods of Wire.

    def write(self, data: bytes) -> None:
        """See Wire."""
        if self._transport is not None:
            self._transport.write(data)

    def close(self) -> None:
        """See Wire."""
        if self._transport is not None:
            self._transport.close()

    def answered(self) -> None:
        """See Wire."""
        self._current = None
        if not self._keep:
            self.close()
        elif self._pending:
            self._next()

    # The requests.

    def _next(self) -> None:
        request = self._pending.popleft()
        self._keep = request.keep
        path = request.url.partition(b"?")[0]
        raw = b"".join(request.parts)
        if request.method == b"POST" and (path in DIALECTS or path == _COUNT):
            try:
                if path == _COUNT:
                    self._count(raw)
                else:
                    self._begin(path, request, raw)
            except Refused as error:
                shape = http.anthropic_error if path.startswith(_MESSAGES) else http.error
                self.write(shape(error.status, str(error)))
                self.answered()
            return
        secret = request.headers.get(SECRET_HEADER, b"")
        self.write(self._admin.answer(request.method, path, secret, raw))
        self.answered()

    def _count(self, raw: bytes) -> None:
        """Answer with the number of tokens of a Messages prompt."""
        asked = DIALECTS[_MESSAGES].read(_object(raw), {})
        self.write(http.json_response({"input_tokens": -(-len(asked.prompt) // TOKEN_BYTES)}))
        self.answered()

    def _begin(self, path: bytes, request: _Request, raw: bytes) -> None:
        body = _object(raw)
        try:
            fault = self._service.faults.draw(request.header(FAULT_HEADER))
        except ValueError as error:
            raise Refused(str(error)) from None
        answer = self._service.read(DIALECTS[path], body)
        call = request.header(CALL_HEADER)
        self._current = Answering(self._service, self, answer, call, fault)
        self._current.begin(body)


def _object(raw: bytes) -> dict[str, Any]:
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise Refused(f"the body is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise Refused("the body must be a JSON object")
    return body
