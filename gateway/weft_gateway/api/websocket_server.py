"""uvicorn's WebSocket protocol with limits on its client and a shutdown that lets a running call
finish.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final, cast

from uvicorn.config import Config
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.datastructures import Headers
from websockets.exceptions import InvalidHandshake
from websockets.frames import CloseCode, Frame
from websockets.http11 import Request
from websockets.server import ServerProtocol

from weft_gateway import errors
from weft_gateway.api.connections import Edge
from weft_gateway.api.keep_alive import COUNTS_EVENTS, EVENT
from weft_gateway.api.timers import LEAST_RATE, Deadline, ReaderWatch
from weft_gateway.api.websocket import BUSY, DRAIN, HELD, IDLE, error_event
from weft_gateway.calls.body_bytes import HeldBytes
from weft_gateway.engine.kernel import reset
from weft_gateway.errors import ApiError

_TRY_AGAIN_LATER: Final = 1013
# Bytes of the reason in a closing frame.
_MOST_REASON: Final = 123
# Bytes parsed per turn of the event loop. A frame may have 6 bytes, and one read about 40,000
# frames, which would block all other connections. Large frames get more bytes per turn.
_A_TURN: Final = 1024
_MOST_A_TURN: Final = 65_536
_OF_UPGRADES: Final = (b"upgrade", b"http2-settings")
# The HTTP parser has already parsed the head within its limits. The WebSocket parser requires some
# head before it reads frames.
_HEAD: Final = b"GET / HTTP/1.1\r\n\r\n"


def handshake(url: bytes, headers: Iterable[tuple[bytes, bytes]]) -> Request:
    """Return the request that opens a WebSocket. Raises ValueError if it cannot open one."""
    try:
        fields = Headers()
        for name, value in headers:
            fields[name.decode("ascii")] = value.decode("ascii", "surrogateescape")
        request = Request(url.decode("ascii"), fields)
        ServerProtocol().process_request(request)
    except UnicodeDecodeError:
        raise ValueError("its target and the names of its headers must be ASCII") from None
    except InvalidHandshake as error:
        raise ValueError(str(error)) from None
    return request


def head_without_upgrade(
    method: bytes, url: bytes, version: bytes, headers: Iterable[tuple[bytes, bytes]]
) -> bytes:
    """Return a request's head without its upgrade, which a server may ignore (RFC 9110, 7.8)."""
    lines = [method, b" ", url, b" HTTP/", version, b"\r\n"]
    for name, value in headers:
        if name == b"connection":
            tokens = [token.strip() for token in value.split(b",")]
            value = b", ".join([t for t in tokens if t.lower() not in _OF_UPGRADES])
        if name not in _OF_UPGRADES and value:
            lines += (name, b": ", value, b"\r\n")
    return b"".join((*lines, b"\r\n"))


class DrainingSocket(WebSocketsSansIOProtocol):
    """A WebSocket that finishes its call before it closes. uvicorn closes WebSockets at once when
    it stops, even with calls in flight. Here the connection is notified and closes when its call is
    answered; uvicorn limits the wait.

    A client that does not read for `send_timeout_s` is disconnected. A WebSocket without a response
    in progress may be closed in favour of a new connection.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        *,
        edge: Edge,
        lost: Callable[[], None],
    ) -> None:
        """lost: called when the connection has ended, so that it no longer counts as open."""
        super().__init__(config, server_state, app_state)
        self._edge = edge
        self._key = b""
        self._lost = lost
        self._reader: ReaderWatch | None = None
        self._counts_events = False
        # The count of messages' bytes, and the sizes of those that wait. Of an incomplete one:
        # whether a deadline applies, and the bytes that have arrived since it was set.
        self._held: HeldBytes | None = None
        self._complete: deque[int] = deque()
        self._timed = False
        self._arrived = 0
        self._deadline = Deadline(self.loop, self._late)
        # Bytes not parsed yet, and whether their parsing waits for its turn.
        self._unparsed = bytearray()
        self._waits = False
        self._turn = _A_TURN

    def open(self, request: Request, key: bytes) -> None:
        """Serve the WebSocket that `request` (see `handshake`) opens, for a client's API key."""
        self._key = key
        self.conn.receive_data(_HEAD)
        self.conn.events_received()
        timeout_s = self._edge.constants.send_timeout_s
        self._reader = ReaderWatch(self.loop, self.transport, timeout_s, self._stalled)
        self._counts_events = COUNTS_EVENTS.decode() in request.headers
        self.handle_connect(request)

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        if self._reader is not None:
            self._reader.stop()
            self._reader = None
        self._deadline.cancel()
        self._unparsed.clear()
        self.frames = []
        # The parser and its generator refer to each other.
        self.conn.parser.close()
        self._edge.sockets.pop(self, None)
        super().connection_lost(exc)
        self._lost()

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        self._unparsed += data
        self._arrived += len(data)
        self._parse_soon()

    def _parse_soon(self) -> None:
        if not self._waits:
            self._waits = True
            self._edge.pieces.add(self._key, self._parse)
            if self._waits:
                self.transport.pause_reading()

    def _parse(self) -> None:
        self._waits = False
        data = bytes(self._unparsed[: self._turn])
        del self._unparsed[: self._turn]
        if data:
            super().data_received(data)
            self._count()
        if self.transport.is_closing():
            self._unparsed.clear()
        elif self._unparsed:
            self._parse_soon()
        elif not self.read_paused:
            self.transport.resume_reading()

    def _count(self) -> None:
        """Count the bytes of messages, and limit the time of one that is not complete. They have
        the limits of bodies.
        """
        size = len(self._unparsed) + len(self.conn.reader.buffer) + sum(map(len, self.frames))
        if self._held is not None:
            try:
                self._held.take(size + sum(self._complete))
            except ApiError as error:
                self._refuse(error, _TRY_AGAIN_LATER)
                return
        if size and not self._timed:
            self._time()
        self._timed = size > 0

    def _time(self) -> None:
        self._arrived = 0
        self._deadline.set(self._edge.constants.body_timeout_s)

    def _late(self) -> None:
        seconds = self._edge.constants.body_timeout_s
        if not self._timed:
            return
        if self._waits or self._arrived >= LEAST_RATE * seconds:
            self._time()
        else:
            error = errors.of("body_timeout", least=LEAST_RATE, seconds=seconds)
            self._refuse(error, CloseCode.POLICY_VIOLATION)

    def handle_cont(self, event: Frame) -> None:
        """Handle a piece of a message. A list of pieces would take many times their size."""
        frames = cast("list[bytes | bytearray]", self.frames)
        if not isinstance(frames[0], bytearray):
            frames[0] = bytearray(frames[0])
        frames[0] += event.data
        if event.fin:
            self.send_receive_event_to_app()

    def handle_events(self) -> None:
        """Handle the events of the bytes that were parsed."""
        events = self.conn.events
        several = len(events) > 1
        self._turn = _A_TURN if several else min(2 * self._turn, _MOST_A_TURN)
        super().handle_events()
        if events and isinstance(events[-1], Frame):
            # The parser refers to its last frame until the next one, which may be minutes later.
            events[-1].data = b""

    async def send(self, message: Any) -> None:
        """See ASGI. Adds IDLE and BUSY: whether a response is in progress; and HELD."""
        if message["type"] == IDLE:
            if self.queue.empty() and not (self.disconnected or self.close_sent):
                self._edge.sockets[self] = None
        elif message["type"] == BUSY:
            self._edge.sockets.pop(self, None)
            if self._complete:
                # It is read now, and its call counts it.
                self._complete.popleft()
                self._count()
        elif message["type"] == HELD:
            self._held = message["held"]
        else:
            await super().send(message)
            if self.initial_response is not None and self.close_sent:
                # Refused over HTTP. uvicorn would log that the handshake is not complete.
                self.handshake_complete = True
            if self._reader is not None:
                self._reader.wrote(len(message.get("text") or ""))

    def send_receive_event_to_app(self) -> None:
        """Handle a complete message. uvicorn would log a traceback for text that is not UTF-8."""
        self._edge.sockets.pop(self, None)
        self._timed = False
        self._complete.append(sum(map(len, self.frames)))
        if self.curr_msg_data_type == "text":
            self.frames = [b"".join(self.frames)]
            try:
                self.frames[0].decode()
            except UnicodeDecodeError:
                self.frames = []
                self.conn.send_close(CloseCode.INVALID_DATA)
                self.handle_parser_exception()
                return
        super().send_receive_event_to_app()

    def handle_ping(self) -> None:
        """Answer a ping, unless the client does not read its answers."""
        if self.writable.is_set():
            super().handle_ping()
        else:
            self.conn.data_to_send()

    def send_keepalive_ping(self) -> None:
        """Send a ping, and an event during a response if the client does not count pings. There is
        at most one of each that the client has not read.
        """
        super().send_keepalive_ping()
        waits = self not in self._edge.sockets and not (self.close_sent or self.disconnected)
        if waits and self._counts_events and not self.transport.is_closing():
            self.conn.send_text(EVENT)
            self.transport.write(b"".join(self.conn.data_to_send()))

    def drop(self, code: str) -> None:
        """Close the connection in favour of another one. code: error code for the metrics."""
        self._end(code, _TRY_AGAIN_LATER, "The gateway needs this idle connection.")

    def _refuse(self, error: ApiError, close: int) -> None:
        """Send an error and close. close: code of the closing frame."""
        if self.close_sent or not self.handshake_complete:
            self.transport.abort()
            return
        self.conn.send_text(error_event(error.status, error.body()))
        self._end(error.code, close, error.message[:_MOST_REASON])

    def _end(self, code: str, close: int, reason: str) -> None:
        self._edge.metrics.error(code)
        self._edge.sockets.pop(self, None)
        self._lost()
        self.stop_keepalive()
        self.queue.put_nowait({"type": "websocket.disconnect", "code": close})
        self.conn.send_close(close, reason)
        self.transport.write(b"".join(self.conn.data_to_send()))
        # Later messages of the application find the client disconnected.
        self.close_sent = self.disconnected = True
        self.transport.close()
        if self._reader is not None:
            self._reader.start()

    def shutdown(self) -> None:
        """Stop as soon as no call is being answered."""
        if self.transport.is_closing():
            return
        if self.handshake_complete and not self.close_sent and not self.disconnected:
            # ASGI has no event for this.
            self.queue.put_nowait(cast(Any, {"type": DRAIN}))
        else:
            super().shutdown()

    def pause_writing(self) -> None:
        super().pause_writing()
        # uvloop counts a message only after the turn in which it was written.
        if self._reader is not None:
            self._reader.start()

    def _stalled(self) -> None:
        self._edge.metrics.error("client_stalled")
        reset(self.transport)
