"""Which headers cross the gateway, both ways. Pure.

To the engine an allow list: what an engine reads, and nothing that could carry a credential under
a name that we do not know. To the client a deny list: the engine's headers, less those that speak
about one connection and those that are ours to write.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import quote

from engine_patches.wire import REPORT_HEADER
from gateway.engine.response import Headers

_TO_ENGINE: Final = frozenset(
    {
        b"accept",
        b"accept-language",
        b"baggage",
        b"content-type",
        b"traceparent",
        b"tracestate",
        b"user-agent",
    }
)
_TO_ENGINE_PREFIXES: Final = (b"x-vllm-", b"anthropic-", b"openai-")
# An Anthropic or OpenAI prefix does not make a credential harmless.
_CREDENTIAL: Final = re.compile(rb"key|token|secret|auth|cookie|organization|project")

_REPORT: Final = REPORT_HEADER.encode()
_NOT_TO_CLIENT: Final = frozenset(
    {
        b"connection",
        b"content-length",
        b"date",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-connection",
        b"server",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"x-request-id",
        b"x-weft-program",
        b"x-weft-replica",
        _REPORT,
    }
)

_SANE_ID: Final = re.compile(rb"[!-~]{1,128}")
_VALUE_SAFE: Final = "".join(chr(c) for c in range(0x21, 0x7F) if chr(c) != "%")


def for_engine(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The client's headers that go on, as lines. Names must be in lower case (as ASGI has them)."""
    lines: list[bytes] = []
    for name, value in headers:
        if name in _TO_ENGINE or (
            name.startswith(_TO_ENGINE_PREFIXES) and not _CREDENTIAL.search(name)
        ):
            lines += (name, b": ", value, b"\r\n")
    return b"".join(lines)


def for_client(headers: Headers) -> tuple[Headers, bytes | None]:
    """The engine's headers that go on, and the value of the report header, if there is one."""
    report = None
    kept = []
    named: frozenset[bytes] = frozenset()
    for pair in headers:
        name = pair[0]
        if name not in _NOT_TO_CLIENT:
            kept.append(pair)
        elif name == _REPORT:
            report = pair[1]
        elif name == b"connection" and pair[1].lower() not in (b"keep-alive", b"close"):
            named = frozenset(part.strip().lower() for part in pair[1].split(b","))
    if named:  # RFC 9110, 7.6.1: headers that Connection names belong to the connection.
        kept = [pair for pair in kept if pair[0] not in named]
    return kept, report


def sane_request_id(value: bytes | None) -> bytes | None:
    """A client's request id if it is printable ASCII without spaces, at most 128 bytes."""
    return value if value is not None and _SANE_ID.fullmatch(value) else None


def header_safe(text: str) -> bytes:
    """`text` as a header value: percent-encoded UTF-8 where it is not plain ASCII already."""
    if text.isascii() and text.isalnum():
        return text.encode()
    return quote(text, safe=_VALUE_SAFE, errors="surrogatepass").encode("ascii")
