"""Minimal ASGI helpers: read a body, send an answer."""

from __future__ import annotations

from starlette.types import Receive, Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from weft_gateway import errors
from weft_gateway.calls.body_bytes import SMALL_BYTES, HeldBytes
from weft_gateway.engine.endpoints import ErrorShape
from weft_gateway.engine.errors import ClientGone
from weft_gateway.engine.response import Headers
from weft_gateway.errors import ApiError


async def read_body(
    headers: dict[bytes, bytes], receive: Receive, limit: int, held: HeldBytes | None = None
) -> bytes:
    """Read the whole request body. held: counts its bytes, before they are read if their number is
    declared; None for bodies of at most SMALL_BYTES.

    Raises ApiError 413 as soon as the body is known to exceed `limit` bytes, 429 or 503 as soon as
    it does not fit beside other bodies, and ClientGone if the client disconnects before its end.
    """
    try:
        declared = int(headers.get(b"content-length", b"0"))
    except ValueError:
        declared = 0
    if declared > limit:
        raise errors.of("body_too_large", limit=limit)
    if declared > SMALL_BYTES and held is not None:
        held.take(declared)
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise ClientGone
        part: bytes = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise errors.of("body_too_large", limit=limit)
        if size > declared and held is not None:
            held.take(size)
        if message.get("more_body"):
            parts.append(part)
        elif parts:
            return b"".join((*parts, part))
        else:
            return part


async def respond(send: Send, status: int, headers: Headers, body: bytes) -> None:
    """Send a complete answer: one start message, one body message."""
    headers.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def respond_error(
    send: Send, error: ApiError, shape: ErrorShape = "openai", request_id: bytes = b""
) -> None:
    """Send an error of the gateway."""
    headers = [(b"content-type", b"application/json"), *error.headers]
    if request_id:
        headers.append((b"x-request-id", request_id))
        if shape == "anthropic":
            headers.append((b"request-id", request_id))
    await respond(send, error.status, headers, error.body(shape, request_id))


def last_answer(error: ApiError, shape: ErrorShape, headers: Headers) -> bytes:
    """Return an error as the bytes of a connection's last answer. headers: further ones."""
    body = error.body(shape)
    lines = [STATUS_LINE[error.status]]
    for name, value in (
        *headers,
        *error.headers,
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ):
        lines += (name, b": ", value, b"\r\n")
    return b"".join((*lines, b"\r\n", body))


def size_of(headers: Headers) -> int:
    """Return the size of headers in a head, in bytes."""
    return sum([len(name) + len(value) + 4 for name, value in headers])
