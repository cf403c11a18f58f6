"""The Responses API over a WebSocket: `GET /v1/responses` with an upgrade.

A client sends `{"type": "response.create", ...}` with the members of a `POST /v1/responses` body,
any number of times, and receives each event of the streamed answer as one JSON text message.
Responses are sequential: further messages wait. An error is `{"type": "error", "status": 400,
"error": {...}}`, and the connection stays open.

Each message is processed like an HTTP request, with the headers of the connection.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections import Counter, deque
from time import time
from typing import Any, Final

import orjson
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from weft_gateway.api.auth import Authenticator
from weft_gateway.api.call import CONNECTION
from weft_gateway.api.http import respond_error
from weft_gateway.api.keep_alive import WITHOUT
from weft_gateway.api.web import may_connect
from weft_gateway.api.websocket_turns import Turn, prepared_events, read_turn
from weft_gateway.calls.body_bytes import BodyBytes
from weft_gateway.calls.stored import TERMINAL, input_of
from weft_gateway.calls.turns import LIGHT_BYTES, Turns
from weft_gateway.config import Settings
from weft_gateway.constants import Constants
from weft_gateway.errors import ApiError
from weft_gateway.model import ProgramKey
from weft_gateway.overlap.events import EventReader
from weft_gateway.programs.response_store import Connection, ResponseStore, StoredResponse
from weft_gateway.telemetry.metrics import Metrics

log = logging.getLogger(__name__)

# Queued by the server for a connection when the server stops.
DRAIN: Final = "weft.drain"
# Messages from the application to the server: whether a response is in progress.
IDLE: Final = "weft.idle"
BUSY: Final = "weft.busy"
# The application tells the server what counts the bytes of messages.
HELD: Final = "weft.held"
PATH: Final = re.compile(rb"(?:/p/[!-.0-~]+)?/v1/responses")
# Headers of the connection, or of the message that opened it.
_OF_THE_CONNECTION: Final = frozenset(
    {
        b"accept",
        b"connection",
        b"content-encoding",
        b"content-length",
        b"content-type",
        b"transfer-encoding",
        b"upgrade",
        b"x-request-id",
    }
)
# Maximum number of answers and items of answers that a connection keeps for itself.
_MOST_KEPT: Final = 16_384
# Maximum number of messages that wait while one is answered.
_WAITING: Final = 8
_ENDS: Final = frozenset(kind.encode() for kind in (*TERMINAL, "response.failed"))
_ERROR_BYTES: Final = 1 << 20
# Events of one read that are forwarded per turn of the event loop.
_EVENTS_A_TURN: Final = 64
_NORMAL, _GOING_AWAY, _POLICY, _INTERNAL = 1000, 1001, 1008, 1011


class ResponsesSockets:
    """The ASGI application for the scope `websocket`, on paths that match PATH."""

    def __init__(
        self,
        settings: Settings,
        constants: Constants,
        auth: Authenticator,
        turns: Turns,
        bodies: BodyBytes,
        metrics: Metrics,
        answers: ResponseStore,
    ) -> None:
        self.settings = settings
        self.constants = constants
        self.turns = turns
        self.bodies = bodies
        self.metrics = metrics
        self.answers = answers
        self.auth = auth
        self._open: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send, serve: ASGIApp) -> None:
        """Serve one connection until either side closes it. `serve`: the application that serves
        the same calls over HTTP.
        """
        if (await receive())["type"] != "websocket.connect":
            return
        try:
            tenant = self._admit(scope)
        except ApiError as error:
            self.metrics.error(error.code)
            await respond_error(_refusing(send), error)
            return
        self._open[tenant] += 1
        try:
            await send({"type": HELD, "held": self.bodies.hold(tenant)})
            await send({"type": "websocket.accept"})
            await _Connection(self, serve, tenant, scope, receive, send).run()
        except OSError:
            return  # The client has disconnected.
        finally:
            self._open[tenant] -= 1
            if not self._open[tenant]:
                del self._open[tenant]

    def _admit(self, scope: Scope) -> str:
        """Return the tenant. Raises ApiError if the connection is refused."""
        headers: dict[bytes, bytes] = dict(scope["headers"])
        if not may_connect(headers, self.settings):
            raise ApiError(403, "origin_not_allowed", "Pages of other origins may not connect.")
        tenant = self.auth.caller(headers).tenant
        if self._open[tenant] >= self.constants.websockets_per_tenant:
            raise ApiError(429, "too_many_websockets", "This key has too many WebSockets open.")
        return tenant


class _Connection:
    """One connection: a reader that never stops, so that pings and a disconnect are noticed, and a
    loop that answers the messages.
    """

    def __init__(
        self,
        sockets: ResponsesSockets,
        serve: ASGIApp,
        tenant: str,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        self._sockets = sockets
        self._serve = serve
        self._tenant = tenant
        self._scope = scope
        self._receive = receive
        self._send = send
        # A client may continue an answer of its connection even if that is not stored.
        self._answers = Connection()
        self._waiting: deque[str] = deque()
        self._news = asyncio.Event()
        self._call: _Call | None = None
        self._gone = False
        self._close: int | None = None

    async def run(self) -> None:
        """Answer messages until the connection ends."""
        reader = asyncio.get_running_loop().create_task(self._read())
        try:
            while (text := await self._next()) is not None:
                try:
                    if len(text) > LIGHT_BYTES:
                        await self._sockets.turns.take(self._tenant, len(text))
                    turn = read_turn(text)
                    del text
                    if turn is not None:
                        await self._answer(turn)
                except ApiError as error:
                    self._sockets.metrics.error(error.code)
                    await self.send_event(error_event(error.status, error.body()))
                # The next message may be minutes later.
                turn = None
                while len(self._answers.names) > _MOST_KEPT:
                    await self._sockets.answers.forget(self._tenant, self._answers.names.pop(0))
            if not self._gone:
                code = _NORMAL if self._close is None else self._close
                await self._send({"type": "websocket.close", "code": code})
        finally:
            reader.cancel()
            for name in self._answers.names:
                await self._sockets.answers.forget(self._tenant, name)

    async def _next(self) -> str | None:
        """Wait for the next message; None if no further message can arrive."""
        if not self._waiting:
            await self._send({"type": IDLE})
        try:
            async with asyncio.timeout(self._sockets.constants.websocket_idle_s):
                while not (self._waiting or self._gone or self._close is not None):
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            return None
        finally:
            await self._send({"type": BUSY})
        if self._gone or self._close is not None:
            return None
        return self._waiting.popleft()

    async def _read(self) -> None:
        most = self._sockets.constants.websocket_message_bytes
        while True:
            message = await self._receive()
            if message["type"] == "websocket.receive":
                # A binary message is not JSON, and the answer says so.
                text = message.get("text") or ""
                size = sum(map(len, self._waiting)) + len(text)
                if len(self._waiting) >= _WAITING or size > most:
                    self._close = _POLICY
                else:
                    self._waiting.append(text)
            elif message["type"] == DRAIN:
                self._close = _GOING_AWAY
            else:
                self._left()
                return
            self._news.set()

    def _left(self) -> None:
        """Handle a disconnect: the running call and the connection end."""
        self._gone = True
        self._news.set()
        if self._call is not None:
            self._call.over.set()

    async def _answer(self, turn: Turn) -> None:
        if not turn.generate:
            # The key may have been removed.
            self._sockets.auth.caller(dict(self._scope["headers"]))
            for event in self._prepare(turn):
                await self.send_event(orjson.dumps(event))
            return
        call = self._call = _Call(self, turn)
        try:
            await self._serve(self._request(turn), call.receive, call.send)
        except Exception:
            # The exception has been logged. Over HTTP the connection would break off here.
            self._close = _INTERNAL
        finally:
            self._call = None
            call.over.set()

    def _prepare(self, turn: Turn) -> list[dict[str, Any]]:
        """Store the input of a turn that generates no answer. Returns its events."""
        response_id = f"resp_{os.urandom(12).hex()}"
        events = prepared_events(turn, response_id, time())
        key, answers = ProgramKey(self._tenant, ""), self._sockets.answers
        names = (self._answers.name(turn.previous), turn.previous)
        answer = StoredResponse(
            key.program,
            previous=next((name for name in names if answers.known(self._tenant, name)), names[1]),
            items=input_of(turn.body),
            response=orjson.dumps(events[-1]["response"]),
        )
        answers.record(key, self._answers.keep(response_id), answer)
        return events

    def _request(self, turn: Turn) -> Scope:
        """Return the turn as an HTTP request."""
        scope = self._scope
        headers = [
            pair
            for pair in scope["headers"]
            if pair[0] not in _OF_THE_CONNECTION and not pair[0].startswith(b"sec-websocket-")
        ]
        headers += (
            (b"accept", b"text/event-stream"),
            (b"content-type", b"application/json"),
            (b"content-length", str(len(turn.body)).encode()),
        )
        kept = {k: scope[k] for k in ("path", "raw_path", "query_string", "client", "server")}
        return {
            **kept,
            "type": "http",
            "asgi": scope["asgi"],
            "http_version": "1.1",
            "method": "POST",
            "scheme": "https" if scope.get("scheme") == "wss" else "http",
            "root_path": scope.get("root_path", ""),
            "headers": headers,
            "state": scope.get("state", {}),
            WITHOUT: True,
            CONNECTION: self._answers,
        }

    async def send_event(self, event: bytes) -> None:
        """Send a message. If the client has disconnected, it is dropped, as over HTTP."""
        if self._gone:
            return
        try:
            await self._send({"type": "websocket.send", "text": event.decode("utf-8", "replace")})
        except OSError:
            self._left()

    async def take_turn(self, size: int) -> None:
        """Let other calls proceed before this one continues. size: bytes to process."""
        await self._sockets.turns.take(self._tenant, size)


class _Call:
    """Both ASGI sides of one call over HTTP."""

    def __init__(self, connection: _Connection, turn: Turn) -> None:
        self.over = asyncio.Event()
        self._connection = connection
        self._turn = turn
        self._asked = False
        self._status = 0
        self._events: EventReader | None = None
        self._ended = False
        self._plain: list[bytes] = []
        self._size = 0

    async def receive(self) -> Message:
        """Return the body, then wait for the end of the call or the connection."""
        if not self._asked:
            self._asked = True
            # Only the call refers to the body, so that it can drop it.
            body, self._turn.body = self._turn.body, b""
            return {"type": "http.request", "body": body, "more_body": False}
        await self.over.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """Process a part of the answer."""
        if message["type"] == "http.response.start":
            self._status = message["status"]
            kind = dict(message["headers"]).get(b"content-type", b"")
            if self._status == 200 and kind.lower().startswith(b"text/event-stream"):
                self._events = EventReader()
            return
        data: bytes = message.get("body", b"")
        more = message.get("more_body", False)
        if self._events is None:
            self._size += len(data)
            if self._size <= _ERROR_BYTES:
                self._plain.append(data)
            if not more:
                await self._connection.send_event(error_event(self._status, b"".join(self._plain)))
            return
        for number, (name, event, _) in enumerate(self._events.feed(data), 1):
            if number % _EVENTS_A_TURN == 0:
                await self._connection.take_turn(len(data))
            if event.startswith(b"{"):
                self._ended |= name in _ENDS
                await self._connection.send_event(event)
        if not (more or self._ended):
            error = ApiError(502, "replica_bad_answer", "The answer ended without its last event.")
            await self._connection.send_event(error_event(error.status, error.body()))


def error_event(status: int, body: bytes) -> bytes:
    """Return an answer that is not a stream as an event. All errors have the API's form."""
    if status < 400:  # An invalid answer is not a success, independent of its status.
        error = ApiError(502, "bad_answer", "The replica did not answer with a stream of events.")
        status, body = error.status, error.body()
    inner = orjson.loads(body)["error"]
    return orjson.dumps({"type": "error", "status": status, "error": inner})


def _refusing(send: Send) -> Send:
    """Wrap `send` to answer over HTTP instead of accepting the connection."""

    async def wrapped(message: Message) -> None:
        await send({**message, "type": f"websocket.{message['type']}"})

    return wrapped
