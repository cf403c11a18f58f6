"""The gateway's errors, in the format that the endpoint's clients expect."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import orjson

from weft_gateway.engine.endpoints import ErrorShape
from weft_gateway.engine.errors import ReplicaError
from weft_gateway.engine.shapes import TOO_LONG, Fault
from weft_gateway.programs.ids import IdentityError

_ANTHROPIC_TYPES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}
# Errors by code: status and message. Codes with other data have functions below.
_ERRORS: Final = {
    "invalid_head": (400, "{what}"),
    "invalid_http": (400, "The request is not valid HTTP: {what:.128}."),
    "invalid_upgrade": (400, "The request does not open a WebSocket: {what:.256}."),
    "media_name": (400, "The gateway cannot pass on a `uuid` of media in this request."),
    "repeated_header": (400, "A request has the header {name} once."),
    "too_deeply_nested": (400, "The body is nested too deeply."),
    "too_many_pipelined": (400, "More than {limit} requests are waiting on this connection."),
    "program_stopped": (403, "The program was stopped. Its calls are refused for five minutes."),
    "response_not_found": (404, "Response with id '{name:.256}' not found."),
    "session_not_found": (404, "No session with id {name!r}."),
    "workflows_not_stored": (404, "Workflows are not stored: POST /v1/runs with the workflow."),
    "unknown_url": (404, "Unknown request URL: {method} {path:.256}."),
    "head_timeout": (408, "The request's head took longer than {seconds:g} s."),
    "body_timeout": (
        408,
        "Less than {least} bytes per second of the request's body arrived within {seconds:g} s.",
    ),
    "expectation_failed": (417, "The gateway knows only the expectation 100-continue."),
    "body_too_large": (413, "The request body is larger than {limit} bytes."),
    "too_many_connections_of_key": (
        429,
        "This API key has reached its limit of connections with requests in progress. "
        "Try again shortly.",
    ),
    "too_many_body_bytes_of_key": (
        429,
        "The requests of this API key that are in progress have too many bytes. Try again shortly.",
    ),
    "slo_infeasible": (
        429,
        "The deadline of class {name} cannot be met: {left_s:.1f} s are left, the program needs "
        "about {path_s:.1f} s, and the calls before it take about {wait_s:.1f} s.",
    ),
    "head_too_large": (431, "The request's head is larger than {limit} bytes."),
    "too_many_headers": (431, "The request has more than {limit} headers."),
    "internal_error": (
        500,
        "The gateway failed. Its log has the details under this request's id.",
    ),
    "unsupported_transfer_coding": (501, "The only transfer coding of the gateway is chunked."),
    "unsupported_http_version": (505, "The gateway speaks HTTP/1.1 and HTTP/1.0."),
    "over_capacity": (
        503,
        "More calls wait than can be served soon, and no new program is taken. Try again shortly.",
    ),
    "no_replica": (503, "No replica can take this call now. Try again shortly."),
    "shutting_down": (
        503,
        "The gateway is shutting down, and this call exceeded the drain time. Try again.",
    ),
    "table_unavailable": (503, "The process table is unreachable. Try again shortly."),
    "storage_unavailable": (
        503,
        "Files, batches and runs cannot be stored now. The gateway's log has the reason.",
    ),
    "too_many_body_bytes": (
        503,
        "The requests in progress have too many bytes for this gateway. Try again shortly.",
    ),
    "too_many_connections": (
        503,
        "The gateway has reached its connection limit. Try again shortly.",
    ),
}
# Retry-After of refusals that a retry soon may avoid, seconds.
RETRY_AFTER_S: Final = 2
_SOON: Final = {
    "no_replica",
    "shutting_down",
    "table_unavailable",
    "too_many_body_bytes",
    "too_many_body_bytes_of_key",
    "too_many_connections",
    "too_many_connections_of_key",
}
# OpenAI's client does not repeat a call that has to wait longer.
_MOST_RETRY_AFTER_S: Final = 120


class ApiError(Exception):
    """An error answer. `code` is a metric label with few values, "" for an engine's error that has
    none.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        param: str | None = None,
        headers: tuple[tuple[bytes, bytes], ...] = (),
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.param = param
        if retry_after_s is not None:
            wait_s = min(retry_after_s, _MOST_RETRY_AFTER_S)
            headers = ((b"retry-after", str(wait_s).encode()), *headers)
        if status == 401:
            # Claude Code repeats these for three minutes in silence, and no repetition can help.
            headers = ((b"x-should-retry", b"false"), *headers)
        self.headers = headers

    def body(self, shape: ErrorShape = "openai", request_id: bytes = b"") -> bytes:
        """Return the JSON body in OpenAI's or Anthropic's format. Only the latter has the id of the
        request.
        """
        if shape == "anthropic":
            kind = _ANTHROPIC_TYPES.get(
                self.status, "invalid_request_error" if self.status < 500 else "api_error"
            )
            whole = {"type": "error", "error": {"type": kind, "message": self.message}}
            return orjson.dumps(whole | ({"request_id": request_id.decode()} if request_id else {}))
        return orjson.dumps(
            {
                "error": {
                    "message": self.message,
                    "type": "invalid_request_error" if self.status < 500 else "server_error",
                    "param": self.param,
                    "code": self.code or None,
                }
            }
        )

    def event(self, shape: ErrorShape = "openai", request_id: bytes = b"") -> bytes:
        """Return the error as a server-sent event, for a stream that has begun."""
        name = b"event: error\n" if shape == "anthropic" else b""
        return name + b"data: " + self.body(shape, request_id) + b"\n\n"

    def response_events(self, response_id: str, sequence_number: int) -> bytes:
        """Return the error as events of the Responses API, as OpenAI sends them: `error`, which
        some clients raise, and `response.failed`, which others wait for. `sequence_number`: number
        of the first event.
        """
        kind, code = "invalid_request_error", self.code or "invalid_prompt"
        if self.status >= 500:
            kind, code = "server_error", self.code or "server_error"
        about = {"code": code, "message": self.message, "param": self.param}
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
            "error": {"code": code, "message": self.message},
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


def of(code: str, *, retry_after_s: int | None = None, **values: object) -> ApiError:
    """Return a known error. values: for the placeholders of its message."""
    status, message = _ERRORS[code]
    if retry_after_s is None and code in _SOON:
        retry_after_s = RETRY_AFTER_S
    return ApiError(status, code, message.format(**values), retry_after_s=retry_after_s)


def replica_failed(error: ReplicaError) -> ApiError:
    """A replica failed the call."""
    soon = RETRY_AFTER_S if error.status == 503 else None
    return ApiError(error.status, error.code, str(error), retry_after_s=soon)


def from_engine(
    fault: Fault, shape: ErrorShape, prompt: str | None = None, tokens: int = 0
) -> ApiError:
    """Return an engine's error with the API's words and codes. prompt: the member of the request
    that has the prompt. tokens: the estimate of its length, for engines that do not count all of
    it.
    """
    status, message, code, param = fault[:4]
    if code == TOO_LONG:
        param = prompt
        if shape == "anthropic":
            # Anthropic's clients read the numbers.
            length = max(fault.length, tokens, fault.limit + 1)
            sizes = f"{length} tokens > {fault.limit} maximum" if fault.limit else message
            message = f"prompt is too long: {sizes}"
    elif status == 429:
        code = code or "rate_limit_exceeded"
    return ApiError(status, code, message, param=param)


def model_not_found(model: str) -> ApiError:
    """No replica serves the model. Same answer as OpenAI's."""
    return ApiError(
        404,
        "model_not_found",
        f"The model `{model[:256]}` does not exist or you do not have access to it.",
        param="model",
    )


def wrong_id(error: IdentityError) -> ApiError:
    """An id is invalid."""
    return ApiError(400, error.code, str(error), param=error.name)


def invalid_member(path: Iterable[str | int], what: str) -> ApiError:
    """A member of the body or a parameter is missing or invalid. path: empty for several."""
    name = ".".join(map(str, path))
    # Pydantic's prefix of messages that our models raise.
    what = what.removeprefix("Value error, ")
    text = f"{name}: {what}" if name else f"{what[:1].upper()}{what[1:]}."
    return ApiError(400, "invalid_request", text, param=name or None)


def previous_response_not_found(response_id: str) -> ApiError:
    """A call continues an answer that the tenant has not stored. Same answer as OpenAI's."""
    return ApiError(
        400,
        "previous_response_not_found",
        f"Previous response with id '{response_id[:256]}' not found.",
        param="previous_response_id",
    )


def wrong_method(method: str, path: str, allow: str) -> ApiError:
    """The URL exists, but not with this method."""
    return ApiError(
        405,
        "method_not_allowed",
        f"Not allowed: {method[:16]} {path[:256]}.",
        headers=((b"allow", allow.encode()),),
    )
