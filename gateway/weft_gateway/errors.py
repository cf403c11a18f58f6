"""The gateway's own errors, in the shape that the endpoint's clients expect."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import orjson

from weft_gateway.engine.endpoints import ErrorShape
from weft_gateway.engine.headers import UnsafeHead
from weft_gateway.programs.ids import IdentityError

_ANTHROPIC_TYPES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
# An engine's error of more bytes is not looked into.
_MOST_ERROR_BYTES: Final = 1 << 20


class ApiError(Exception):
    """An answer that the gateway gives itself. `code` labels metrics: one of few."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        param: str | None = None,
        headers: tuple[tuple[bytes, bytes], ...] = (),
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.param = param
        self.headers = headers

    def body(self, shape: ErrorShape = "openai") -> bytes:
        """The JSON body, in OpenAI's or Anthropic's shape."""
        if shape == "anthropic":
            kind = _ANTHROPIC_TYPES.get(
                self.status, "invalid_request_error" if self.status < 500 else "api_error"
            )
            inner = {"type": kind, "message": self.message, "code": self.code}
            return orjson.dumps({"type": "error", "error": inner})
        return orjson.dumps(
            {
                "error": {
                    "message": self.message,
                    "type": "invalid_request_error" if self.status < 500 else "server_error",
                    "param": self.param,
                    "code": self.code,
                }
            }
        )

    def event(self, shape: ErrorShape = "openai") -> bytes:
        """The same as a server-sent event, for a stream that has begun."""
        name = b"event: error\n" if shape == "anthropic" else b""
        return name + b"data: " + self.body(shape) + b"\n\n"

    def response_events(self, response_id: str, sequence_number: int) -> bytes:
        """The same for a stream of the Responses API, as OpenAI ends one: an event `error`, which
        some clients raise, and `response.failed`, which others wait for. `sequence_number`: of the
        first of both."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        about = {"code": self.code, "message": self.message, "param": self.param}
        error = {
            "type": "error",
            "sequence_number": sequence_number,
            **about,
            "error": {"type": kind, **about},
        }
        response: dict[str, Any] = {
            "id": response_id,
            "object": "response",
            "status": "failed",
            "error": {"code": self.code, "message": self.message},
            "output": [],
            "usage": None,
        }
        failed = {
            "type": "response.failed",
            "sequence_number": sequence_number + 1,
            "response": response,
        }
        return b"event: error\ndata: %b\n\nevent: response.failed\ndata: %b\n\n" % (
            orjson.dumps(error),
            orjson.dumps(failed),
        )


def engine_error(status: int, body: bytes, shape: ErrorShape) -> bytes:
    """An engine's error in the shape of the API. vLLM answers every route in OpenAI's shape, and
    FastAPI, which it runs on, with `detail`. Anything else stays as it is."""
    try:
        told = orjson.loads(body) if len(body) <= _MOST_ERROR_BYTES else None
    except orjson.JSONDecodeError:
        return body
    if not isinstance(told, dict):
        return body
    inner, detail, param = told.get("error"), told.get("detail"), None
    if isinstance(inner, dict):
        if shape == "openai" or told.get("type") == "error":
            return body
        message, code = inner.get("message"), inner.get("code")
    elif isinstance(detail, list) and detail and isinstance(detail[0], dict):
        # What FastAPI finds wrong with a request. The first part says where it looked.
        path = detail[0].get("loc")
        param = ".".join(map(str, path[1:])) if isinstance(path, list) else None
        message, code = detail[0].get("msg"), "invalid_request"
    else:
        message, code = detail, "engine_error"
    if not isinstance(message, str):
        return body
    # Engines give numbers, too.
    shown: Any = code if isinstance(code, str | int) else "engine_error"
    return ApiError(status, shown, message, param=param).body(shape)


def model_not_found(model: str) -> ApiError:
    """The model is served by no replica: as OpenAI answers it."""
    return ApiError(
        404,
        "model_not_found",
        f"The model `{model[:256]}` does not exist or you do not have access to it.",
        param="model",
    )


def wrong_id(error: IdentityError) -> ApiError:
    """An id that cannot be taken."""
    return ApiError(400, error.code, str(error), param=error.name)


def unsafe_head(error: UnsafeHead) -> ApiError:
    """A header, path or query that cannot be written into an engine's request head."""
    return ApiError(400, "invalid_head", str(error))


def invalid_member(path: Iterable[str | int], what: str) -> ApiError:
    """A member of the body, or a parameter, that is missing or wrong."""
    name = ".".join(map(str, path))
    return ApiError(400, "invalid_request", f"{name}: {what}", param=name or None)


def too_deep() -> ApiError:
    """JSON that is nested deeper than it can be read, or written again where that is needed."""
    return ApiError(400, "too_deeply_nested", "The body is nested too deeply.")


def internal() -> ApiError:
    """An exception that nobody foresaw. What it was is for the log, not for clients."""
    return ApiError(
        500, "internal_error", "The gateway failed. Its log tells why, under this request's id."
    )


def no_replica(retry_after_s: int) -> ApiError:
    """No replica can take the call now."""
    return ApiError(
        503,
        "no_replica",
        "No replica can take this call now. Try again shortly.",
        headers=((b"retry-after", str(retry_after_s).encode()),),
    )


def table_unavailable(retry_after_s: int) -> ApiError:
    """The process table's store cannot be reached."""
    return ApiError(
        503,
        "table_unavailable",
        "The process table cannot be reached. Try again shortly.",
        headers=((b"retry-after", str(retry_after_s).encode()),),
    )


def response_not_found(response_id: str) -> ApiError:
    """No stored answer of this tenant has that id."""
    return ApiError(404, "response_not_found", f"Response with id '{response_id[:256]}' not found.")


def previous_response_not_found(response_id: str, status: int = 400) -> ApiError:
    """A call continues an answer that this tenant has not stored: as OpenAI answers it. 404: the
    answer was stored, and is lost."""
    return ApiError(
        status,
        "previous_response_not_found",
        f"Previous response with id '{response_id[:256]}' not found.",
        param="previous_response_id",
    )


def unknown_route(method: str, path: str) -> ApiError:
    """No such URL."""
    return ApiError(404, "unknown_url", f"Unknown request URL: {method} {path[:256]}.")


def wrong_method(method: str, path: str, allow: str) -> ApiError:
    """The URL exists, with other methods."""
    return ApiError(
        405,
        "method_not_allowed",
        f"Not allowed: {method[:16]} {path[:256]}.",
        headers=((b"allow", allow.encode()),),
    )


def not_http(what: str) -> ApiError:
    """Bytes that are no HTTP request."""
    return ApiError(400, "invalid_http", f"The request is not valid HTTP: {what[:128]}.")


def invalid_upgrade(what: str) -> ApiError:
    """A request for a WebSocket that does not open one."""
    return ApiError(400, "invalid_upgrade", f"The request opens no WebSocket: {what[:256]}.")


def head_too_large(limit: int) -> ApiError:
    """The request line and the headers together are too long."""
    return ApiError(431, "head_too_large", f"The request's head is larger than {limit} bytes.")


def too_many_headers(limit: int) -> ApiError:
    """The request has too many headers."""
    return ApiError(431, "too_many_headers", f"The request has more than {limit} headers.")


def head_timeout(seconds: float) -> ApiError:
    """The request's head did not come in time."""
    return ApiError(408, "head_timeout", f"The request's head took longer than {seconds:g} s.")


def body_timeout(seconds: float) -> ApiError:
    """The request's body did not come in time."""
    return ApiError(408, "body_timeout", f"The request's body took longer than {seconds:g} s.")


def too_many_pipelined(limit: int) -> ApiError:
    """Too many requests were sent ahead of their answers."""
    return ApiError(
        400, "too_many_pipelined", f"More than {limit} requests wait on this connection."
    )


def too_many_connections(retry_after_s: int) -> ApiError:
    """Every connection that the gateway takes is in use."""
    return ApiError(
        503,
        "too_many_connections",
        "The gateway has as many connections as it takes. Try again shortly.",
        headers=((b"retry-after", str(retry_after_s).encode()),),
    )


def too_many_of_key(retry_after_s: int) -> ApiError:
    """One API key has requests in progress on as many connections as it may."""
    return ApiError(
        429,
        "too_many_connections_of_key",
        "This API key has requests in progress on as many connections as it may. "
        "Try again shortly.",
        headers=((b"retry-after", str(retry_after_s).encode()),),
    )


def shutting_down(retry_after_s: int) -> ApiError:
    """The gateway ends before the call could."""
    return ApiError(
        503,
        "shutting_down",
        "The gateway is shutting down, and this call took longer than it could wait. Try again.",
        headers=((b"retry-after", str(retry_after_s).encode()),),
    )
