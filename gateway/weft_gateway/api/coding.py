"""Content codings of request bodies (RFC 9110, 8.4), decoded piece by piece for all routes.

The reader of a body has its limits, so a small body that decodes to a large one is refused before
all of it is decoded.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

import zstandard
from starlette.types import Message, Receive, Scope

from weft_gateway.api.auth import presented
from weft_gateway.calls.turns import Turns
from weft_gateway.errors import ApiError
from weft_gateway.programs.identity import tenant_of

# Decoded bytes of one message, about.
_PIECE: Final = 1 << 16
# Bytes that the decoder of zstd gets at once. It decodes all of them: 4 bytes may be 128 KiB.
_SLICE: Final = 256
# A decoder of zstd must support this window (RFC 8878, 3.1.1.1.2).
_WINDOW: Final = 8 << 20
_ZLIB: Final = 15
_OF_BODY: Final = (b"content-encoding", b"content-length", b"transfer-encoding")


class _Decoder(Protocol):
    """ended: whether the bytes so far are complete."""

    ended: bool

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """Yield what the next bytes contain. Raises zlib.error and zstandard.ZstdError."""
        ...


class _Zlib:
    """gzip and deflate. bits: see `zlib.decompressobj`, 0 for deflate, with zlib's header or not:
    clients send both.
    """

    def __init__(self, bits: int) -> None:
        self._bits = bits
        self._one: Any = None
        self.ended = True

    def pieces(self, data: bytes) -> Iterator[bytes]:
        while data or not self.ended:
            if self._one is None or self._one.eof:
                head = data[:2]
                is_zlib = len(head) == 1 or (head[0] & 15 == 8 and int.from_bytes(head) % 31 == 0)
                self._one = zlib.decompressobj(self._bits or (_ZLIB if is_zlib else -_ZLIB))
            found = self._one.decompress(data, _PIECE)
            data = self._one.unused_data or self._one.unconsumed_tail
            self.ended = self._one.eof
            yield found
            if not data and len(found) < _PIECE:
                return


class _Zstd:
    def __init__(self) -> None:
        self._one: Any = None
        self.ended = True

    def pieces(self, data: bytes) -> Iterator[bytes]:
        for at in range(0, len(data), _SLICE):
            rest = data[at : at + _SLICE]
            while rest:
                if self._one is None or self._one.eof:
                    self._one = zstandard.ZstdDecompressor(max_window_size=_WINDOW).decompressobj()
                yield self._one.decompress(rest)
                self.ended = self._one.eof
                rest = self._one.unused_data if self.ended else b""


_DECODERS: Final[dict[bytes, Callable[[], _Decoder]]] = {
    b"gzip": lambda: _Zlib(_ZLIB + 16),
    b"x-gzip": lambda: _Zlib(_ZLIB + 16),
    b"deflate": lambda: _Zlib(0),
    b"zstd": _Zstd,
}
_ACCEPTED: Final = b"gzip, deflate, zstd"


def decoded(scope: Scope, receive: Receive, turns: Turns) -> tuple[Scope, Receive]:
    """Return a request without its content coding. Raises ApiError 415 for an unknown one."""
    headers = scope["headers"]
    codings = [value for name, value in headers if name == b"content-encoding"]
    coding = b",".join(codings).strip().lower()
    if coding in (b"", b"identity"):
        return scope, receive
    make = _DECODERS.get(coding)
    if make is None:
        what = f"The content coding of the body must be one of {_ACCEPTED.decode()}."
        accepted = ((b"accept-encoding", _ACCEPTED),)
        raise ApiError(415, "unsupported_content_coding", what, headers=accepted)
    kept = [pair for pair in headers if pair[0] not in _OF_BODY]
    # The size is not known.
    kept.append((b"transfer-encoding", b"chunked"))
    found = dict(headers)
    key = presented(found.get(b"authorization", b""), found.get(b"x-api-key", b""))
    body = _Body(make(), receive, turns, tenant_of(key.decode("latin-1")))
    return {**scope, "headers": kept}, body.receive


class _Body:
    """The body of one request."""

    def __init__(self, decoder: _Decoder, receive: Receive, turns: Turns, tenant: str) -> None:
        self._decoder = decoder
        self._receive = receive
        self._turns = turns
        self._tenant = tenant
        self._pieces: Iterator[bytes] = iter(())
        self._last = self._over = False

    async def receive(self) -> Message:
        """Return the next message, as ASGI defines it. Raises ApiError 400."""
        if self._over:
            return await self._receive()
        parts, size = [], 0
        await self._turns.take(self._tenant, _PIECE)
        while size < _PIECE:
            try:
                piece = next(self._pieces, None)
            except (zlib.error, zstandard.ZstdError) as error:
                what = f"The body cannot be decoded as its content-encoding says: {error}."
                raise ApiError(400, "invalid_content_coding", what[:256]) from None
            if piece is not None:
                parts.append(piece)
                size += len(piece)
            elif self._last:
                self._over = True
                if not self._decoder.ended:
                    what = "The body ends before the end of its content-encoding."
                    raise ApiError(400, "invalid_content_coding", what)
                break
            elif parts:
                break
            else:
                message = await self._receive()
                if message["type"] != "http.request":
                    return message
                self._last = not message.get("more_body")
                self._pieces = self._decoder.pieces(message.get("body", b""))
        return {"type": "http.request", "body": b"".join(parts), "more_body": not self._over}
