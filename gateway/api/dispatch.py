"""The first look at a request: hot calls to their lean handler, everything else to FastAPI."""

from __future__ import annotations

from urllib.parse import quote_from_bytes

from gateway.api.call import CallHandler
from gateway.api.errors import ApiError, unknown_route, wrong_method
from gateway.api.http import AsgiApp, Receive, Scope, Send, respond_error
from gateway.api.passthrough import Passthrough, methods
from gateway.api.services import Services
from gateway.api.sessions import decoded_id
from gateway.engine.endpoints import BY_PATH, ErrorShape
from gateway.engine.errors import ClientGone
from gateway.engine.headers import sane_request_id

_PROGRAM = b"/p/"
_SESSIONS = b"/v1/sessions/"


class Dispatcher:
    """An ASGI application. It needs the raw path, as uvicorn gives it: an id in a path may contain
    any byte, and a decoded path cannot tell an encoded slash from a real one."""

    def __init__(self, services: Services, cold: AsgiApp) -> None:
        """`cold`: the ASGI application for the other routes and for the lifespan."""
        self.services = services
        self._calls = CallHandler(services)
        self._passthrough = Passthrough(services)
        self._cold = cold

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection event of ASGI."""
        if scope["type"] != "http":
            await self._cold(scope, receive, send)
            return
        endpoint = BY_PATH.get(scope["path"])
        if endpoint is not None and scope["method"] == "POST":
            await self._calls(endpoint, scope, receive, send, None)
            return
        try:
            await self._rarer(scope, receive, send)
        except ApiError as error:
            self.services.metrics.error(error.code)
            given = sane_request_id(dict(scope["headers"]).get(b"x-request-id"))
            extra = ((b"x-request-id", given),) if given else ()
            shape: ErrorShape = "anthropic" if "/v1/messages" in scope["path"] else "openai"
            await respond_error(send, error, shape, extra)
        except ClientGone:
            return

    async def _rarer(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw: bytes = scope.get("raw_path") or scope["path"].encode()
        path, program = scope["path"], None
        if raw.startswith(_PROGRAM):
            segment, _, rest = raw[len(_PROGRAM) :].partition(b"/")
            program, path = decoded_id(segment.decode("latin-1")), f"/{rest.decode('latin-1')}"
            if not program or not path.startswith("/v1/"):
                raise unknown_route(scope["method"], scope["path"])
            scope = {**scope, "path": path, "raw_path": b"/" + rest}
            raw = b"/" + rest
        endpoint = BY_PATH.get(path)
        if endpoint is not None:
            if scope["method"] != "POST":
                raise wrong_method(scope["method"], path, "POST")
            await self._calls(endpoint, scope, receive, send, program)
            return
        allowed = methods(path)
        if allowed:
            if scope["method"] not in allowed:
                raise wrong_method(scope["method"], path, ", ".join(allowed))
            await self._passthrough(path, scope, receive, send)
            return
        if raw.startswith(_SESSIONS):
            # Kept percent-encoded, so that the id is one segment whatever it contains.
            encoded = quote_from_bytes(raw[len(_SESSIONS) :], safe="%")
            scope = {**scope, "path": _SESSIONS.decode() + encoded}
        await self._cold(scope, receive, send)
