"""Builds HTTP responses as bytes. Pure.

A streamed response uses chunked encoding, so that each chunk can be one write.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

import orjson
from weft_engine.wire import REPORT_COMMENT, REPORT_HEADER, CallReport

END_OF_BODY: Final = b"0\r\n\r\n"
STREAM_HEAD: Final = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"cache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n"
)
_KINDS: Final = {400: "BadRequestError", 403: "weft_error", 404: "NotFoundError"}

_ANTHROPIC_KINDS: Final = {400: "invalid_request_error", 404: "not_found_error"}


def response(status: int, body: bytes, headers: bytes = b"", kind: str = "") -> bytes:
    """Return a whole response.

    headers: further lines, each ending in CRLF. kind: content type, JSON by default.
    """
    return b"HTTP/1.1 %d %b\r\ncontent-type: %b\r\n%bcontent-length: %d\r\n\r\n%b" % (
        status,
        HTTPStatus(status).phrase.encode(),
        (kind or "application/json").encode(),
        headers,
        len(body),
        body,
    )


def json_response(value: Any, status: int = 200) -> bytes:
    """Return a whole response with a JSON body."""
    return response(status, orjson.dumps(value))


def error(status: int, message: str) -> bytes:
    """Return a whole error response in vLLM's format."""
    kind = _KINDS.get(status, "InternalServerError")
    detail = {"message": message, "type": kind, "param": None, "code": status}
    return json_response({"error": detail}, status)


def anthropic_error(status: int, message: str) -> bytes:
    """Return a whole error response in the Anthropic API's format."""
    kind = _ANTHROPIC_KINDS.get(status, "api_error")
    detail = {"type": kind, "message": message}
    return json_response({"type": "error", "error": detail}, status)


def report_header(report: CallReport) -> bytes:
    """Return the header line that carries a report in a plain answer."""
    return b"%b: %b\r\n" % (REPORT_HEADER.encode(), report.to_json().encode())


def report_comment(report: CallReport) -> bytes:
    """Return the SSE comment that carries a report in a stream."""
    return REPORT_COMMENT + report.to_json().encode() + b"\n\n"


def chunk(data: bytes) -> bytes:
    """Return one HTTP chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)
