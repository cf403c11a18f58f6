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
from typing import Any, Final

import orjson
from starlette.types import Message, Scope, Send

from weft_gateway.calls.call import Call
from weft_gateway.calls.spending import headers as budget_headers
from weft_gateway.engine.headers import header_safe
from weft_gateway.engine.response import Headers
from weft_gateway.errors import ApiError

log = logging.getLogger(__name__)

# Key of the scope of a call that needs no keep-alives: its connection has its own.
WITHOUT: Final = "weft.without_keep_alive"
# Codex ends a Responses stream in which it has received no event for some time: comments and pings
# of WebSockets do not count. Its requests have this header. Other clients get no such event: some
# helpers of OpenAI's SDKs fail if it precedes `response.created`.
COUNTS_EVENTS: Final = b"originator"
EVENT: Final = b'{"type":"keepalive"}'


class KeepAlive:
    """The keep-alives of one call. heard: something was sent since the last tick. quiet_from: loop
    time since which nothing was sent.
    """

    __slots__ = ("_call", "_may_beat", "_send", "_status", "_streams", "heard", "quiet_from")

    def __init__(self, call: Call, send: Send) -> None:
        self.heard = True
        self.quiet_from = 0.0
        self._call = call
        self._send = send
        self._status = 0
        # Whether the head of the engine's stream has passed, and whether keep-alives may be sent.
        self._streams = False
        self._may_beat = True

    def send(self, message: Message) -> Awaitable[None]:
        """Send a message of the call, which contains whole events. See ASGI."""
        self.heard = True
        return self._send(message) if self._streams else self._begin(message)

    def beat(self) -> None:
        """Send a keep-alive, unless the client has yet to read earlier bytes."""
        call = self._call
        if not self._may_beat:
            return
        if not (self._streams or call.early):
            start = {"type": "http.response.start", "status": 200, "headers": _headers(call)}
            call.early = _at_once(self._send(start))
            if not call.early:
                return
        part = call.endpoint.keep_alive
        if call.endpoint.chained and any(name == COUNTS_EVENTS for name, _ in call.headers):
            part = b"event: keepalive\ndata: %b\n\n" % EVENT
        _at_once(self._send({"type": "http.response.body", "body": part, "more_body": True}))

    async def _begin(self, message: Message) -> None:
        """Send a message before the head of a stream, or of an answer that is no stream."""
        call = self._call
        if message["type"] == "http.response.start":
            self._status = message["status"]
            if not call.early:
                self._may_beat = False
                await self._send(message)
            kind = dict(message["headers"]).get(b"content-type", b"")
            if kind.lower().startswith(b"text/event-stream"):
                self._streams = self._may_beat = True
        elif call.early:
            body = _late(call, self._status, message["body"])
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
        loop = asyncio.get_running_loop()
        tick_s = min(1.0, max(0.02, (self._interval_s or 8) / 8))
        while True:
            await asyncio.sleep(tick_s)
            self._tick(loop.time())

    def _tick(self, now: float) -> None:
        for each in tuple(self._all):
            if each.heard:
                each.heard, each.quiet_from = False, now
            elif now - each.quiet_from >= self._interval_s:
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


def _headers(call: Call) -> Headers:
    """Return the headers that are known before the engine has answered."""
    program = header_safe(call.identity.key.program)
    limits = call.admitted.headers if call.admitted is not None else ()
    kind = (b"content-type", b"text/event-stream; charset=utf-8")
    program_and_id = (b"x-weft-program", program), (b"x-request-id", call.request_id)
    return [kind, *program_and_id, *limits, *budget_headers(call.balances)]


def _late(call: Call, status: int, body: bytes) -> bytes:
    """Return an answer that is no stream as the error event of the API. Each error has its form."""
    error = ApiError(502, "replica_bad_answer", "The replica did not answer with a stream.")
    if status >= 400:
        said = orjson.loads(body)["error"]
        error = ApiError(status, said.get("code") or "", said["message"], param=said.get("param"))
    if call.endpoint.chained:
        response_id = call.response_id or f"resp_{call.id.removeprefix('call-')}"
        return error.response_events(response_id, 0)
    return error.event(call.endpoint.errors, call.request_id)
