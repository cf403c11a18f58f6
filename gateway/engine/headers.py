"""Which headers cross the gateway, both ways. Pure.

Allow lists both ways. To the engine: what an engine reads, and nothing that could carry a
credential under a name that we do not know. To the client: what describes the answer or its limits.
Everything else that an engine may send concerns its own host or its own connection: cookies, CORS,
HSTS and redirects would act on the gateway's host, in its clients' browsers.
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
_TO_CLIENT: Final = frozenset(
    {
        b"allow",
        b"cache-control",
        b"content-disposition",
        b"content-encoding",
        b"content-language",
        b"content-type",
        b"deprecation",
        b"retry-after",
        b"retry-after-ms",
        b"server-timing",
        b"sunset",
        b"warning",
        b"x-accel-buffering",
        b"x-should-retry",
    }
)
_TO_CLIENT_PREFIXES: Final = (
    b"anthropic-",
    b"openai-",
    b"ratelimit",
    b"x-ratelimit-",
    b"x-vllm-",
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
    for pair in headers:
        name = pair[0]
        if name in _TO_CLIENT or name.startswith(_TO_CLIENT_PREFIXES):
            kept.append(pair)
        elif name == _REPORT:
            report = pair[1]
    return kept, report


def sane_request_id(value: bytes | None) -> bytes | None:
    """A client's request id if it is printable ASCII without spaces, at most 128 bytes."""
    return value if value is not None and _SANE_ID.fullmatch(value) else None


def header_safe(text: str) -> bytes:
    """`text` as a header value: percent-encoded UTF-8 where it is not plain ASCII already."""
    if text.isascii() and text.isalnum():
        return text.encode()
    return quote(text, safe=_VALUE_SAFE, errors="surrogatepass").encode("ascii")
