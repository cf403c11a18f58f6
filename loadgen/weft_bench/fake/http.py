"""Builds HTTP responses as bytes. Pure.

A streamed response uses chunked encoding, so that each chunk can be one write.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

import orjson

END_OF_BODY: Final = b"0\r\n\r\n"
STREAM_HEAD: Final = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"cache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n"
)
_KINDS: Final = {400: "BadRequestError", 404: "NotFoundError"}


def response(status: int, body: bytes, kind: str = "application/json") -> bytes:
    """Return a whole response. kind: content type."""
    return b"HTTP/1.1 %d %b\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n%b" % (
        status,
        HTTPStatus(status).phrase.encode(),
        kind.encode(),
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


def chunk(data: bytes) -> bytes:
    """Return one HTTP chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)
