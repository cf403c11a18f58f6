"""Converts exceptions of all layers to answers in the API's format."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from weft_gateway import errors
from weft_gateway.api.http import respond_error
from weft_gateway.engine.endpoints import api_of
from weft_gateway.engine.engine_request import TooDeep
from weft_gateway.engine.errors import ClientGone, ReplicaError
from weft_gateway.engine.headers import UnsafeHead, sane_request_id
from weft_gateway.errors import ApiError
from weft_gateway.overlap.prefill import PrefillError
from weft_gateway.programs.ids import IdentityError
from weft_gateway.programs.table import TableUnavailable

log = logging.getLogger(__name__)


class Failures:
    """Converts exceptions to answers and counts them."""

    def __init__(self, count_error: Callable[[str], None], next_call: Callable[[], str]) -> None:
        """count_error: counts an error code in the metrics. next_call: creates ids for requests
        without one.
        """
        self.count = count_error
        self._next_call = next_call

    def known(self, error: Exception) -> ApiError | None:
        """Return the error that clients get for an exception; None if it is unexpected."""
        match error:
            case ApiError():
                return error
            case IdentityError():
                return errors.wrong_id(error)
            case PrefillError():
                status = 409 if error.code == "prefill_prefix_mismatch" else 400
                return ApiError(status, error.code, str(error))
            case ReplicaError():
                return errors.replica_failed(error)
            case UnsafeHead():
                return errors.of("invalid_head", what=str(error))
            case TooDeep():
                return errors.of("too_deeply_nested")
            case TableUnavailable():
                return errors.of("table_unavailable")
            case _:
                return None

    def shown(self, error: Exception, request_id: bytes, what: str) -> ApiError:
        """Return the error that a client gets, and count it. An unexpected one is logged under the
        request's id. what: the request, for the log.
        """
        shown = self.known(error)
        if shown is None:
            shown = errors.of("internal_error")
            log.error(
                "request %s, %s: unexpected %s",
                request_id.decode(),
                what,
                type(error).__name__,
                exc_info=error,
            )
        self.count(shown.code)
        return shown

    async def respond(
        self,
        scope: Scope,
        send: Send,
        error: Exception,
        request_id: bytes | None = None,
    ) -> None:
        """Answer with an exception. `request_id`: the id already assigned to the request, if any.

        An unexpected exception is logged under the request's id and becomes a 500. If the answer
        has begun, the exception is raised again: the server then aborts the connection, so that no
        client can mistake this for the end of the answer.
        """
        given = request_id or sane_request_id(dict(scope["headers"]).get(b"x-request-id"))
        if given is None and self.known(error) is None:
            given = b"req" + self._next_call().removeprefix("call").encode()
        path = scope["path"][:256].encode("unicode_escape").decode()
        shown = self.shown(error, given or b"", f"{scope['method']} {path}")
        shape = api_of(scope["path"], scope["headers"])
        try:
            await respond_error(send, shown, shape, given or b"")
        except Exception:
            raise error from None
        finally:
            # The exception's traceback may refer to this frame.
            del error, shown


class Unforeseen:
    """ASGI middleware directly around FastAPI's routes. It answers exceptions that they do not
    handle, before Starlette answers in plain text.
    """

    def __init__(self, app: ASGIApp, failures: Failures) -> None:
        self._app = app
        self._failures = failures

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection scope."""
        try:
            await self._app(scope, receive, send)
        except ClientGone:
            return
        except Exception as error:
            if scope["type"] != "http":
                raise
            await self._failures.respond(scope, send, error)


def install(app: FastAPI, failures: Failures) -> None:
    """Convert FastAPI's error answers to the API's format."""

    def answer(error: ApiError, request: Request) -> Response:
        failures.count(error.code)
        request_id = sane_request_id(request.headers.get("x-request-id", "").encode("latin-1"))
        return Response(
            error.body(api_of(request.url.path, request.headers.raw), request_id or b""),
            status_code=error.status,
            media_type="application/json",
            headers={name.decode(): value.decode() for name, value in error.headers},
        )

    @app.exception_handler(ApiError)
    @app.exception_handler(IdentityError)
    @app.exception_handler(PrefillError)
    @app.exception_handler(TableUnavailable)
    async def own(request: Request, error: Exception) -> Response:
        return answer(failures.known(error) or errors.of("internal_error"), request)

    @app.exception_handler(sqlite3.Error)
    async def database(request: Request, error: sqlite3.Error) -> Response:
        log.error("%s %s: the database refuses: %s", request.method, request.url.path, error)
        return answer(errors.of("storage_unavailable"), request)

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        method, path = request.method, request.url.path
        if error.status_code == 405:
            allow = (error.headers or {}).get("Allow", "GET")
            return answer(errors.wrong_method(method, path, allow), request)
        if path.startswith("/v1/workflows"):
            return answer(errors.of("workflows_not_stored"), request)
        if error.status_code == 404:
            return answer(errors.of("unknown_url", method=method, path=path), request)
        return answer(ApiError(error.status_code, "http_error", str(error.detail)), request)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        # The first element is the part of the request: query, path or header.
        return answer(errors.invalid_member(first["loc"][1:], first["msg"]), request)

    app.add_middleware(Unforeseen, failures=failures)
