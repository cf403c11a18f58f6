"""Keep-alives of streamed calls: the client, and each proxy between, see that a call goes on.

A stream can be silent for minutes: the call is held by the gateway or queued by the engine, its
prompt is long, or the model reasons. Proxies and clients end connections that are silent. After
`heartbeat_s` without a byte, the client gets what its API allows between two events: a comment, or
`ping` of the Messages API. If the engine has not answered yet, the answer's head is sent first.

Afterwards an error has no status any more. The client gets it as the error event of its API.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Generator
from enum import Enum
from typing import Any, Final

from starlette.types import Message, Scope, Send

from weft_gateway import errors
from weft_gateway.calls.call import Call
from weft_gateway.calls.relay import early_headers
from weft_gateway.engine.shapes import fault_of
from weft_gateway.errors import ApiError

log = logging.getLogger(__name__)

# Key of the scope of a call that needs no keep-alives: its connection has its own.
WITHOUT: Final = "weft.without_keep_alive"
# Codex ends a Responses stream in which it has received no event for some time: comments and pings
# of WebSockets do not count. Its requests have this header. Other clients get no such event: some
# helpers of OpenAI's SDKs fail if it precedes `response.created`.
COUNTS_EVENTS: Final = b"originator"
EVENT: Final = b'{"type":"keepalive"}'


class _State(Enum):
    """The part of the answer that the client has. AHEAD: a head that was sent before the engine's.
    LATE: the same, and the answer is no stream. STREAM: the head of a stream. OTHER: anything else,
    without keep-alives.
    """

    NOTHING = 1
    AHEAD = 2
    LATE = 3
    STREAM = 4
    OTHER = 5


class KeepAlive:
    """The keep-alives of one call. heard: something was sent since the last tick. quiet_from: loop
    time since which nothing was sent.
    """

    __slots__ = ("_call", "_parts", "_send", "_state", "_status", "heard", "quiet_from")

    def __init__(self, call: Call, send: Send) -> None:
        self.heard = True
        self.quiet_from = 0.0
        self._call = call
        self._send = send
        self._state = _State.NOTHING
        self._status = 0
        self._parts: list[bytes] = []

    def send(self, message: Message) -> Awaitable[None]:
        """Send a message of the call, which contains whole events. See ASGI."""
        self.heard = True
        if self._state is _State.STREAM:
            return self._send(message)
        return self._begin(message)

    def beat(self) -> None:
        """Send a keep-alive, unless the client has yet to read earlier bytes."""
        if self._state is _State.OTHER:
            return
        call = self._call
        if self._state is _State.NOTHING:
            start = {"type": "http.response.start", "status": 200, "headers": early_headers(call)}
            if not _at_once(self._send(start)):
                return
            self._state, call.early = _State.AHEAD, True
        part = call.endpoint.keep_alive
        if call.endpoint.chained and any(name == COUNTS_EVENTS for name, _ in call.headers):
            part = b"event: keepalive\ndata: %b\n\n" % EVENT
        _at_once(self._send({"type": "http.response.body", "body": part, "more_body": True}))

    async def _begin(self, message: Message) -> None:
        """Send a message while the answer is no stream yet."""
        if message["type"] == "http.response.start":
            ahead = self._state is _State.AHEAD
            stream = dict(message["headers"]).get(b"content-type", b"").startswith(b"text/event-")
            self._status = message["status"]
            if not ahead:
                self._state = _State.OTHER
                await self._send(message)
            if stream:
                self._state = _State.STREAM
            elif ahead:
                self._state = _State.LATE
        elif self._state is _State.LATE:
            self._parts.append(message["body"])
            if not message.get("more_body"):
                body = _late(self._call, self._status, b"".join(self._parts))
                await self._send({"type": "http.response.body", "body": body})
        else:
            await self._send(message)


class KeepAlives:
    """The keep-alives of all calls, on one timer."""

    def __init__(self, interval_s: float) -> None:
        """interval_s: the longest silence of a stream; 0: unlimited. It ends up to two ticks late:
        a tick is an eighth of it, at most 1 s.
        """
        self._interval_s = interval_s
        self._all: set[KeepAlive] = set()

    def expect(self, call: Call, scope: Scope, send: Send) -> KeepAlive | None:
        """Return the keep-alives of a call; None if it needs none."""
        if not (self._interval_s and call.body.get("stream") is True) or WITHOUT in scope:
            return None
        keep_alive = KeepAlive(call, send)
        self._all.add(keep_alive)
        return keep_alive

    def done(self, keep_alive: KeepAlive | None) -> None:
        """Send none to a call any more."""
        if keep_alive is not None:
            self._all.discard(keep_alive)

    async def run(self) -> None:
        """Tick until cancelled."""
        loop, interval_s = asyncio.get_running_loop(), self._interval_s
        tick_s = min(1.0, max(0.02, interval_s / 8)) if interval_s else 1.0
        while True:
            await asyncio.sleep(tick_s)
            now = loop.time()
            for each in tuple(self._all):
                if each.heard:
                    each.heard, each.quiet_from = False, now
                elif now - each.quiet_from >= interval_s:
                    each.quiet_from = now
                    try:
                        each.beat()
                    except Exception:
                        log.exception("a keep-alive failed")
                        self.done(each)


def _at_once(sending: Awaitable[None]) -> bool:
    """Send a message if this needs no waiting. Return whether it was sent. The server waits before
    it writes, while the client has many unread bytes. So nothing comes between the messages of the
    call, and keep-alives do not accumulate.
    """
    steps: Generator[Any, None, None] = sending.__await__()
    try:
        next(steps)
    except StopIteration:
        return True
    steps.close()
    return False


def _late(call: Call, status: int, body: bytes) -> bytes:
    """Return an answer that is no stream as the error event of the API."""
    shape = call.endpoint.errors
    error = ApiError(502, "replica_bad_answer", "The replica did not answer with a stream.")
    if status >= 400:
        error = errors.from_engine(fault_of(body, status), shape, call.endpoint.prompt)
    if call.endpoint.chained:
        response_id = call.response_id or f"resp_{call.id.removeprefix('call-')}"
        return error.response_events(response_id, 0)
    return error.event(shape, call.request_id)
