"""Spans as OTLP, a protobuf message whose fields are few. Pure.

The numbers are those of `opentelemetry/proto/trace/v1/trace.proto`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from struct import pack
from typing import Final

from weft_gateway.telemetry.traces import Ended, Ids, new_span

_NS: Final = 1_000_000_000
_INTERNAL: Final = b"\x30\x01"
_CLIENT: Final = b"\x30\x03"
_ERROR: Final = b"\x7a\x02\x18\x02"
# Attributes whose value no two calls share.
_UNIQUE: Final = frozenset({"weft.call", "weft.request_id"})


def request(resource: bytes, scope: bytes, spans: Iterable[bytes]) -> bytes:
    """Return an ExportTraceServiceRequest. spans: of one resource and scope."""
    of_scope = scope + b"".join([_field(b"\x12", span) for span in spans])
    return _field(b"\x0a", resource + _field(b"\x12", of_scope))


def resource(attributes: Mapping[str, object]) -> bytes:
    """Return the resource of a request."""
    pairs = [_pair(b"\x0a", key, value) for key, value in attributes.items()]
    return _field(b"\x0a", b"".join(pairs))


def scope(name: str, version: str) -> bytes:
    """Return the scope of a request."""
    return _field(b"\x0a", _field(b"\x0a", name.encode()) + _field(b"\x12", version.encode()))


def spans(ended: Ended) -> list[bytes]:
    """Return the span of a call or program, and the spans of its phases."""
    ids, begun_ns = ended.ids, ended.begun_ns
    trace, own = b"\x0a\x10" + ids.trace.to_bytes(16), ids.span.to_bytes(8)
    parts = [
        trace,
        b"\x12\x08",
        own,
        _field(b"\x2a", ended.name.encode()),
        _CLIENT if ended.is_call else _INTERNAL,
        pack("<BQBQ", 0x39, begun_ns, 0x41, begun_ns + int(ended.seconds * _NS)),
    ]
    if ended.parent is not None:
        parts.append(b"\x22\x08" + ended.parent.span.to_bytes(8))
    for key, value in ended.attributes.items():
        shared = type(value) is str and key not in _UNIQUE
        parts.append(_known(key, value) if shared else _pair(b"\x4a", key, value))
    parts += [_field(b"\x6a", _link(link)) for link in ended.links]
    if ended.error:
        parts.append(_ERROR)
    found = [b"".join(parts)]
    head = trace + b"\x22\x08" + own + _INTERNAL
    for name, begun_s, ended_s in ended.phases:
        begin_ns, end_ns = begun_ns + int(begun_s * _NS), begun_ns + int(ended_s * _NS)
        times = pack("<BQBQ", 0x39, begin_ns, 0x41, max(begin_ns, end_ns))
        found.append(
            b"%b\x12\x08%b\x2a%c%b%b"
            % (head, new_span().to_bytes(8), len(name), name.encode(), times)
        )
    return found


def _link(ids: Ids) -> bytes:
    return b"\x0a\x10" + ids.trace.to_bytes(16) + b"\x12\x08" + ids.span.to_bytes(8)


def _pair(tag: bytes, key: str, value: object) -> bytes:
    """Return a KeyValue as a field of its message."""
    if isinstance(value, bool):
        written = b"\x10\x01" if value else b"\x10\x00"
    elif isinstance(value, int):
        written = b"\x18" + _varint(value & (1 << 64) - 1)
    elif isinstance(value, float):
        written = pack("<Bd", 0x21, value)
    else:
        written = _field(b"\x0a", str(value).encode())
    return _field(tag, _field(b"\x0a", key.encode()) + _field(b"\x12", written))


@lru_cache(maxsize=4096)
def _known(key: str, value: str) -> bytes:
    return _pair(b"\x4a", key, value)


def _field(tag: bytes, data: bytes) -> bytes:
    return tag + _varint(len(data)) + data


def _varint(number: int) -> bytes:
    if number < 128:
        return bytes((number,))
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    found.append(number)
    return bytes(found)
