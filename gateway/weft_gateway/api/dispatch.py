"""Routes requests: calls go to `weft_gateway.calls`, all others to FastAPI."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote_from_bytes, unquote_to_bytes

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from weft_gateway import errors
from weft_gateway.api.call import CallEndpoint
from weft_gateway.api.coding import decoded
from weft_gateway.api.failures import Failures
from weft_gateway.api.passthrough import Passthrough, methods
from weft_gateway.api.web import Cors, check_origin
from weft_gateway.api.websocket import ResponsesSockets
from weft_gateway.config import Settings
from weft_gateway.engine.endpoints import BY_PATH
from weft_gateway.engine.errors import ClientGone
from weft_gateway.errors import ApiError, wrong_method
from weft_gateway.programs.ids import from_bytes

_PROGRAM = b"/p/"
_SESSIONS = b"/v1/sessions/"
# Resources below a session. In an id with such an ending, the slash is encoded.
_PARTS = (b"/story", b"/events")
_EXTEND = re.compile(r"/v1/hints/prefill/([^/]{1,512})/extend")
_CHAT = BY_PATH["/v1/chat/completions"]


@dataclass(slots=True, eq=False)
class Dispatcher:
    """The ASGI application. It requires the raw path, which uvicorn provides: an id in a path may
    contain any character, and a decoded path does not distinguish an encoded slash from a real one.

    others: the application for all other routes and for the lifespan. cors: None if pages of other
    origins may not call.
    """

    calls: CallEndpoint
    passthrough: Passthrough
    sockets: ResponsesSockets
    others: ASGIApp
    failures: Failures
    cors: Cors | None
    settings: Settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection scope."""
        if scope["type"] == "websocket":
            await self.sockets(scope, receive, send, self)
            return
        if scope["type"] != "http":
            await self.others(scope, receive, send)
            return
        if self.cors is not None:
            if self.cors.asks(scope):
                await self.cors.answer(scope, send)
                return
            send = self.cors.wrap(scope, send)
        try:
            check_origin(scope, self.settings)
            for name, _ in scope["headers"]:
                if name == b"content-encoding":
                    scope, receive = decoded(scope, receive, self.calls.turns)
                    break
        except ApiError as error:
            await self.failures.respond(scope, send, error)
            return
        endpoint = BY_PATH.get(scope["path"])
        if endpoint is not None and scope["method"] == "POST":
            await self.calls(endpoint, scope, receive, send)
            return
        try:
            await self._rarer(scope, receive, send)
        except ClientGone:
            return
        except Exception as error:
            await self.failures.respond(scope, send, error)

    async def _rarer(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw: bytes = scope.get("raw_path") or scope["path"].encode()
        path, program = scope["path"], None
        if raw.startswith(_PROGRAM):
            segment, _, rest = raw[len(_PROGRAM) :].partition(b"/")
            path = f"/{rest.decode('latin-1')}"
            program = from_bytes(unquote_to_bytes(segment), b"program")
            if not program or not path.startswith("/v1/"):
                raise errors.of("unknown_url", method=scope["method"], path=scope["path"])
            scope = {**scope, "path": path, "raw_path": b"/" + rest}
            raw = b"/" + rest
        endpoint = BY_PATH.get(path)
        if endpoint is not None:
            if scope["method"] != "POST":
                raise wrong_method(scope["method"], path, "POST")
            await self.calls(endpoint, scope, receive, send, program)
            return
        extended = _EXTEND.fullmatch(path)
        if extended:
            if scope["method"] != "POST":
                raise wrong_method(scope["method"], path, "POST")
            await self.calls(_CHAT, scope, receive, send, program, extended[1])
            return
        allowed = methods(raw)
        if allowed:
            if scope["method"] not in allowed:
                raise wrong_method(scope["method"], path, ", ".join(allowed))
            await self.passthrough(raw, scope, receive, send)
            return
        if raw.startswith(_SESSIONS):
            # Percent-encoded, so that the id is one segment independent of its characters.
            rest = raw[len(_SESSIONS) :]
            part = next((part for part in _PARTS if rest.endswith(part)), b"")
            encoded = quote_from_bytes(rest.removesuffix(part), safe="%")
            scope = {**scope, "path": _SESSIONS.decode() + encoded + part.decode()}
        if scope["method"] == "HEAD":
            # The server omits the body, since it uses its own copy of the method.
            scope, send = {**scope, "method": "GET"}, _head_only(send)
        await self.others(scope, receive, send)


def _head_only(send: Send) -> Send:
    """Wrap `send` to end an answer after its head: a stream of events has no end."""

    async def wrapped(message: Message) -> None:
        if message["type"] == "http.response.start":
            await send(message)
            await send({"type": "http.response.body", "body": b""})

    return wrapped
