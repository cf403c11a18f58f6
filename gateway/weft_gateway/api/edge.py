"""The client side of a connection: limits on resources and time per client.

uvicorn's protocol does not limit a request's head, the time for a head or a body, or a client that
does not read. `EdgeProtocol` adds these limits.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final

import httptools
from uvicorn._types import ASGI3Application
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle
from uvicorn.server import ServerState

from weft_gateway import errors
from weft_gateway.api.auth import presented
from weft_gateway.api.coalescing import CoalescingProtocol
from weft_gateway.api.connections import Connection, Edge
from weft_gateway.api.http import last_answer, size_of
from weft_gateway.api.timers import LEAST_RATE, Deadline, ReaderWatch
from weft_gateway.api.websocket import PATH
from weft_gateway.api.websocket_server import DrainingSocket, handshake, head_without_upgrade
from weft_gateway.engine.endpoints import api_of
from weft_gateway.engine.kernel import bound_sending, reset
from weft_gateway.errors import ApiError

# Time in which a refused client can read the answer; its data is dropped. Closing at once would
# reset the connection, and the client would not receive the reason.
_LINGER_S: Final = 2.0
# Maximum number of dropped bytes: reading costs time as well.
_MOST_DROPPED: Final = 1 << 20
# Requests that one connection may send before their answers.
_MOST_PIPELINED: Final = 32
_MAX_HEADERS: Final = 128
_OF_BODIES: Final = (b"content-length", b"transfer-encoding")
# Headers that few requests have, and those that a request has once: of several, software in front
# of the gateway may have read another one.
_RARE: Final = frozenset({b"transfer-encoding", b"expect"})
_ONCE: Final = frozenset(
    {b"authorization", b"x-api-key", b"host", b"transfer-encoding", b"expect", b"content-type"}
)
# Load balancers and monitoring request these paths without a key, even while keyless clients have
# reached their limit.
_UNCOUNTED: Final = (b"/health", b"/ready", b"/metrics")

# The connection's state: what it waits for. _NEXT: the first byte of the next head.
_HEAD: Final = 1
_BODY: Final = 2
_NOTHING: Final = 3
_NEXT: Final = 4


class EdgeProtocol(CoalescingProtocol):
    """A client's connection with limits on its resources."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        edge: Edge,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._edge = edge
        self._max_head = edge.constants.max_head_bytes
        # Bytes that certainly belong to the current head, and bytes of all reads that contain it.
        self._head_bytes = 0
        self._read_bytes = 0
        # Trailers of the current body, and bytes of the reads since its last content.
        self._trailers = 0
        self._empty_bytes = 0
        # Bytes of the reads since the deadline was set.
        self._arrived = 0
        # The current state, and the state that the deadline applies to.
        self._waits = _HEAD
        self._timed = _NOTHING
        self._deadline = Deadline(self.loop, self._late)
        # The group of waiting connections that contains this one.
        self._among: dict[Connection, None] = edge.fresh
        self._reader: ReaderWatch | None = None
        self._key: bytes | None = None
        self._begun = False
        self._counted = True
        self._refused = False
        self._dropped = 0
        self._upgrades = False
        self._running: RequestResponseCycle
        # Read before any request has begun.
        self.url = b""
        self.headers = []

    # The connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        bound_sending(transport)
        edge = self._edge
        room = edge.make_room()
        edge.open += 1
        if room:
            self._wait_among(edge.fresh)
            self._time()
        else:
            self.refuse(errors.of("too_many_connections"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost()
        self._deadline.cancel()
        if self.pipeline:
            # The running request ends, not the last one. Those behind it refer to this object.
            self.cycle = self._running
            self.pipeline.clear()
        if self.cycle is not None:
            # See `_closing`, which refers to the request.
            vars(self.cycle).pop("send", None)
        super().connection_lost(exc)
        if self._reader is not None:
            self._reader.stop()
            self._reader = None

    def data_received(self, data: bytes) -> None:
        if self._refused:
            self._dropped += len(data)
            if self._dropped > _MOST_DROPPED:
                self.flow.pause_reading()
            return
        waited, headers = self._waits, self.headers
        self._read_bytes = len(data) + (self._read_bytes if waited == _HEAD else 0)
        self._empty_bytes += len(data)
        self._arrived += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if self._should_upgrade():
                self.handle_websocket_upgrade()
                return
            self._without_upgrade(data[upgrade.args[0] :])
            return
        except httptools.HttpParserError as error:
            # An error that a callback of the parser has raised.
            refusal = error.__context__
            if not isinstance(refusal, ApiError):
                refusal = errors.of("invalid_http", what=str(error))
            self.refuse(refusal)
            return
        if self._waits == _HEAD:
            # The part of this read before a head that follows other requests is unknown.
            behind = self.headers is not headers and (waited == _BODY or self.busy)
            self._head_bytes += size_of(self.headers) if behind else len(data)
            if self._head_bytes > self._max_head:
                self.refuse(errors.of("head_too_large", limit=self._max_head))
                return
        elif self._waits == _BODY:
            # A trailer or a chunk extension may have no end, and the parser keeps a trailer.
            if self._empty_bytes > self._max_head:
                self.refuse(errors.of("head_too_large", limit=self._max_head))
                return
        elif not self.busy:
            # Line ends between two requests, or the rest of a body that was answered early.
            self._waits = _HEAD
        if self._waits != self._timed:
            self._time()

    def _should_upgrade(self) -> bool:
        """Whether the request can open a WebSocket. Other upgrades are ignored."""
        return (
            self.parser.get_method() == b"GET"
            and not self.busy
            and PATH.fullmatch(self.url.partition(b"?")[0]) is not None
            and not any(name in _OF_BODIES and value != b"0" for name, value in self.headers)
            and super()._should_upgrade()
        )

    def handle_websocket_upgrade(self) -> None:
        """Pass the connection to a WebSocket, perhaps in a later turn of the event loop."""
        self._deadline.cancel()
        self._among.pop(self, None)
        self.flow.pause_reading()
        self._edge.pieces.add(self._key or b"", self._open_websocket)

    def _open_websocket(self) -> None:
        """Open the WebSocket. The connection still counts, also for its API key."""
        if self.transport.is_closing():
            return
        try:
            request = handshake(self.url, self.headers)
        except ValueError as error:
            self.refuse(errors.of("invalid_upgrade", what=str(error)))
            return
        self.flow.resume_reading()
        self.connections.discard(self)
        socket = DrainingSocket(
            self.config, self.server_state, self.app_state, edge=self._edge, lost=self._lost
        )
        # It refers to this object, which gets no further events.
        self.parser = None
        socket.connection_made(self.transport)
        self.transport.set_protocol(socket)
        socket.open(request, self._key or b"")

    def _lost(self) -> None:
        self._out()
        self._leave()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def _without_upgrade(self, rest: bytes) -> None:
        """Parse the request again without its upgrade. After the head of an upgrade request, the
        parser expects another protocol."""
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        head = head_without_upgrade(method, self.url, version, self.headers)
        self._upgrades = False
        self.parser = httptools.HttpRequestParser(self)
        self.data_received(head + rest)

    @property
    def busy(self) -> bool:
        """Whether a request waits for its answer or for the end of it."""
        return self.cycle is not None and not self.cycle.response_complete

    # The parser

    def on_message_begin(self) -> None:
        self._waits = _HEAD
        self._begun = True
        self._head_bytes = 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        headers = self.headers
        if self._waits == _BODY:
            # A trailer is not a header (RFC 9110, 6.5.1): the call may have begun without it.
            self._trailers += 1
            if self._trailers > _MAX_HEADERS:
                raise errors.of("too_many_headers", limit=_MAX_HEADERS)
            return
        if len(headers) >= _MAX_HEADERS:
            self._check_size()
            raise errors.of("too_many_headers", limit=_MAX_HEADERS)
        headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        if self._read_bytes > self._max_head:
            self._check_size()
        if self.parser.should_upgrade() and not self._should_upgrade():
            if self.parser.get_method() == b"CONNECT":
                raise errors.wrong_method("CONNECT", "", "GET, POST, DELETE")
            self._upgrades = True
            return
        if len(self.pipeline) >= _MOST_PIPELINED:
            raise errors.of("too_many_pipelined", limit=_MOST_PIPELINED)
        headers, version = dict(self.headers), self.parser.get_http_version()
        if version != "1.1" or b"host" not in headers or not _RARE.isdisjoint(headers):
            self._check_framing(headers, version)
        if len(headers) != len(self.headers):
            _check_repeated(self.headers)
        if self._key is None:
            self._enter(headers)
        self._waits = _BODY
        self._trailers = 0
        self._empty_bytes = 0
        super().on_headers_complete()
        if version == "1.0":
            self.cycle.send = _closing(self.cycle)  # type: ignore[method-assign, assignment]

    def _check_framing(self, headers: dict[bytes, bytes], version: str) -> None:
        """Check what few requests have (RFC 9110, 10.1.1, and RFC 9112, 2.3, 3.2 and 6.1)."""
        coding = headers.get(b"transfer-encoding")
        expected = headers.get(b"expect")
        if version not in ("1.0", "1.1"):
            raise errors.of("unsupported_http_version")
        if version == "1.0":
            if coding is not None:
                raise errors.of("invalid_http", what="HTTP/1.0 has no transfer codings")
            return
        if b"host" not in headers:
            raise errors.of("invalid_http", what="the header host is missing")
        if coding is not None and coding.strip().lower() != b"chunked":
            raise errors.of("unsupported_transfer_coding")
        if expected is not None:
            if expected.lower() != b"100-continue":
                raise errors.of("expectation_failed")
            self.expect_100_continue = True

    def on_body(self, body: bytes) -> None:
        self._empty_bytes = 0
        if not self.cycle.body:
            # uvicorn's bytearray would cost two copies of each read. A read that follows before the
            # last one was taken is appended to bytes as well.
            self.cycle.body = b""  # type: ignore[assignment]
        super().on_body(body)

    def _check_size(self) -> None:
        if max(len(self.url), size_of(self.headers)) > self._max_head:
            raise errors.of("head_too_large", limit=self._max_head)

    def on_message_complete(self) -> None:
        if self._upgrades:
            return
        if self._timed == _BODY:
            self._among.pop(self, None)
        self._waits = self._timed = _NOTHING
        self._begun = False
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Same as in uvicorn's protocol, but without its costly timer between requests."""
        self.server_state.total_requests += 1
        closing = self.transport.is_closing()
        if not closing:
            self.flow.resume_reading()
        if self.pipeline:
            if not closing:
                cycle, app = self.pipeline.pop()
                self._start_asgi_task(cycle, app)
            return
        self._leave()
        if closing:
            # The client has yet to read the rest of the answer.
            self._watch_reader()
        elif self._waits == _NOTHING and self._counted:
            self._wait_among(self._edge.idle)
            self._waits = self._timed = _NEXT
            self._deadline.set(self._edge.constants.keep_alive_s)

    # The counts

    def _enter(self, headers: dict[bytes, bytes]) -> None:
        """Count a request that begins."""
        edge = self._edge
        self._among.pop(self, None)
        if self.url in _UNCOUNTED:
            return
        key = presented(headers.get(b"authorization", b""), headers.get(b"x-api-key", b""))
        if not edge.enter(key):
            raise errors.of("too_many_connections_of_key")
        self._key = key

    def _leave(self) -> None:
        """Count the end of the last request in progress."""
        key, self._key = self._key, None
        if key is not None:
            self._edge.leave(key)

    def _wait_among(self, others: dict[Connection, None]) -> None:
        others[self] = None
        self._among = others

    def _out(self) -> None:
        """Remove the connection from the counts."""
        if self._counted:
            self._counted = False
            self._edge.open -= 1
            self._among.pop(self, None)

    # The ends

    def drop(self, code: str) -> None:
        """Close the connection without an answer. code: error code for the metrics."""
        self._edge.metrics.error(code)
        self._out()
        self.transport.abort()

    def refuse(self, error: ApiError) -> None:
        """Answer with an error, and close. If an answer has begun, the connection is aborted, so
        that no client can mistake this for the end of the answer."""
        self._edge.metrics.error(error.code)
        self._refused = True
        self._deadline.cancel()
        if self.busy:
            cycle = self.cycle
            # The application detects that the client is gone.
            cycle.disconnected = True
            cycle.message_event.set()
            if cycle.response_started or self.pipeline or self._waits == _HEAD:
                self.transport.abort()
                return
        shape = api_of((self.url or b"").decode("latin-1"), self.headers)
        self.transport.write(last_answer(error, shape, self.server_state.default_headers))
        # Reading continues, and the data is dropped: closing with unread bytes would reset the
        # connection, and the client would not receive the reason.
        self.flow.resume_reading()
        self.loop.call_later(_LINGER_S, self.transport.abort)
        self.loop.call_soon(self._end_of_answer)

    def _end_of_answer(self) -> None:
        with contextlib.suppress(OSError, RuntimeError):
            if not self.transport.is_closing():
                self.transport.write_eof()

    # The times

    def _time(self) -> None:
        """Set the deadline for the current state."""
        constants = self._edge.constants
        self._timed = waits = self._waits
        self._arrived = 0
        if waits == _HEAD:
            within = constants.head_timeout_s
        else:
            within = constants.body_timeout_s
            if not self.pipeline:
                self._wait_among(self._edge.receiving)
        self._deadline.set(within)

    def _late(self) -> None:
        constants = self._edge.constants
        if self._waits == _NOTHING:
            return  # The awaited data has arrived.
        if self._waits == _NEXT:
            self.transport.close()
            self._watch_reader()
        elif self._waits == _BODY and not self.pipeline:
            seconds = constants.body_timeout_s
            if self._arrived >= LEAST_RATE * seconds:
                self._time()
            else:
                self.refuse(errors.of("body_timeout", least=LEAST_RATE, seconds=seconds))
        elif self.busy:
            # The next request, which has to wait for this answer anyway.
            self._time()
        elif self._begun:
            self.refuse(errors.of("head_timeout", seconds=constants.head_timeout_s))
        else:
            # The client has sent nothing that needs an answer.
            self.drop("head_timeout")

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_reader()

    def resume_writing(self) -> None:
        if self._reader is not None:
            self._reader.stop()
        super().resume_writing()

    def _watch_reader(self) -> None:
        """While bytes wait to be written, check that the client reads."""
        if self._reader is None:
            timeout_s = self._edge.constants.send_timeout_s
            self._reader = ReaderWatch(self.loop, self.transport, timeout_s, self._stalled)
        self._reader.start()

    def _stalled(self) -> None:
        self._edge.metrics.error("client_stalled")
        reset(self.transport)


def _check_repeated(headers: Iterable[tuple[bytes, bytes]]) -> None:
    names = [name for name, _ in headers if name in _ONCE]
    for name in names:
        if names.count(name) > 1:
            raise errors.of("repeated_header", name=name.decode())


def _closing(cycle: RequestResponseCycle) -> Callable[[Any], Coroutine[Any, Any, None]]:
    """Return how a request of HTTP/1.0 is answered: it knows no chunks, so the end of the
    connection ends a stream (RFC 9112, 6.3).
    """
    send = cycle.send
    sized = True

    async def closing(message: Any) -> None:
        nonlocal sized
        if message["type"] == "http.response.start":
            sized = any(name == b"content-length" for name, _ in message.get("headers", ()))
            if not sized:
                cycle.chunked_encoding = False
        elif not sized:
            cycle.expected_content_length = len(message.get("body", b""))
        await send(message)

    return closing
