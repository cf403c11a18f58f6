"""Content codings of request bodies (RFC 9110, 8.4), decoded piece by piece for all routes.

The reader of a body has its limits, so a small body that decodes to a large one is refused before
all of it is decoded.
"""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import zstandard
from starlette.types import Message, Receive, Scope

from weft_gateway.api.auth import presented
from weft_gateway.calls.turns import Turns
from weft_gateway.errors import ApiError
from weft_gateway.programs.identity import tenant_of

# Coded and decoded bytes of one message, about, with those for its members.
_PIECE: Final = 1 << 16
# Bytes that a decoder gets at once. It decodes all of them: 4 bytes of zstd may be 128 KiB.
_SLICE: Final = 256
# A decoder takes about as long to make as this many bytes to decode.
_MEMBER: Final = 1024
# How much larger a body may be than its content, in bytes. Members count _MEMBER each.
_MOST_WASTE: Final = 1 << 20
# A decoder of zstd must support this window (RFC 8878, 3.1.1.1.2).
_WINDOW: Final = 8 << 20
_OF_BODY: Final = (b"content-encoding", b"content-length", b"transfer-encoding")
_ACCEPTED: Final = b"gzip, deflate, zstd"
_DECODERS: Final[dict[bytes, Callable[[], Any]]] = {
    b"gzip": lambda: zlib.decompressobj(16 + zlib.MAX_WBITS),
    b"x-gzip": lambda: zlib.decompressobj(16 + zlib.MAX_WBITS),
    b"deflate": zlib.decompressobj,
    b"zstd": lambda: zstandard.ZstdDecompressor(max_window_size=_WINDOW).decompressobj(),
}


def decoded(scope: Scope, receive: Receive, turns: Turns) -> tuple[Scope, Receive]:
    """Return a request without its content coding. Raises ApiError 415 for an unknown one."""
    headers = scope["headers"]
    coding = b",".join([value for name, value in headers if name == b"content-encoding"]).lower()
    if coding == b"identity":
        return scope, receive
    make = _DECODERS.get(coding)
    if make is None:
        what = f"The content coding of the body must be one of {_ACCEPTED.decode()}."
        accepted = ((b"accept-encoding", _ACCEPTED),)
        raise ApiError(415, "unsupported_content_coding", what, headers=accepted)
    found = dict(headers)
    key = presented(found.get(b"authorization", b""), found.get(b"x-api-key", b""))
    messages = _messages(receive, make, turns, tenant_of(key.decode("latin-1")))

    async def received() -> Message:
        message = await anext(messages, None)
        return await receive() if message is None else message

    # The size is not known.
    kept = [pair for pair in headers if pair[0] not in _OF_BODY]
    return {**scope, "headers": [*kept, (b"transfer-encoding", b"chunked")]}, received


async def _messages(
    receive: Receive, make: Callable[[], Any], turns: Turns, tenant: str
) -> AsyncIterator[Message]:
    """Yield the messages of a decoded body. Raises ApiError 400."""
    one, more, cost, waste = None, True, 0, 0
    parts: list[bytes] = []
    while more:
        message = await receive()
        if message["type"] != "http.request":
            yield message
            return
        data, more = message.get("body", b""), message.get("more_body", False)
        for at in range(0, len(data), _SLICE):
            rest = data[at : at + _SLICE]
            used, size = len(rest), 0
            try:
                while rest:
                    if one is None or one.eof:
                        one = make()
                        used += _MEMBER
                    parts.append(one.decompress(rest))
                    size += len(parts[-1])
                    rest = one.unused_data if one.eof else b""
            except (zlib.error, zstandard.ZstdError) as error:
                raise _wrong(str(error)) from None
            cost += used + size
            waste += used - size
            if waste > _MOST_WASTE:
                raise _wrong("it is much larger than its content")
            if cost >= _PIECE:
                yield {"type": "http.request", "body": b"".join(parts), "more_body": True}
                await turns.take(tenant, cost)
                parts, cost = [], 0
    if one is not None and not one.eof:
        raise _wrong("it is not complete")
    yield {"type": "http.request", "body": b"".join(parts), "more_body": False}


def _wrong(what: str) -> ApiError:
    text = f"The body cannot be decoded as its content-encoding says: {what}."
    return ApiError(400, "invalid_content_coding", text[:256])
