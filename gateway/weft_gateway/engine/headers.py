"""Which headers cross the gateway, both ways. Pure.

Allow lists both ways. To the engine: what an engine reads, and nothing that could carry a
credential under a name that we do not know. To the client: what describes the answer or its limits.
Everything else that an engine may send concerns its own host or its own connection: cookies, CORS,
HSTS and redirects would act on the gateway's host, in its clients' browsers.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote

from weft_engine.wire import REPORT_HEADER

from weft_gateway.engine.response import Headers

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
# `x-vllm-priority` is read as a hint: vLLM's priority policy would order all tenants by it.
_NOT_TO_ENGINE: Final = re.compile(
    rb"key|token|secret|auth|cookie|organization|project|x-vllm-priority"
)

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

# What a URL's query may be (RFC 3986, 3.4): no other byte is written into a request line.
_QUERY: Final = re.compile(rb"(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2}){0,2048}")
# What is written into a request line: one path and query without spaces.
_TARGET: Final = re.compile(rb"/[!-~]*")
# Bytes that no field of a head may have. A tab may stand inside of a value.
_CONTROLS: Final = bytes([*range(0x09), *range(0x0A, 0x20), 0x7F])

_SANE_ID: Final = re.compile(rb"[!-~]{1,128}")
_VALUE_SAFE: Final = "".join(chr(c) for c in range(0x21, 0x7F) if chr(c) != "%")


class UnsafeHead(ValueError):
    """A request head that an engine could read as something else than is meant."""


def for_engine(headers: Headers) -> Headers:
    """The client's headers that go on. Names must be in lower case (as ASGI has them)."""
    return [
        pair
        for pair in headers
        if (name := pair[0]) in _TO_ENGINE
        or (name.startswith(_TO_ENGINE_PREFIXES) and not _NOT_TO_ENGINE.search(name))
    ]


def request_head(
    method: str, prefix: bytes, target: bytes, own: bytes, fields: Headers, length: int
) -> bytes:
    """The head of a request: every head that the gateway writes to an engine is made here.

    prefix: of the engine's base URL. target: path and query. own: complete lines that hold nothing
    of a client's. length: of the body, bytes. Raises UnsafeHead for a target with other bytes than
    printable ASCII, and for a control byte in a field: it would end the field, or the head.
    """
    if not _TARGET.fullmatch(target):
        raise UnsafeHead("The request's target has bytes that no request line can carry.")
    written = b"".join([b"%b: %b\r\n" % pair for pair in fields])
    # Each line has its own two; one more of them is a client's.
    if len(written) - len(written.translate(None, _CONTROLS)) != 2 * len(fields):
        raise UnsafeHead("A header has control bytes.")
    return b"%b %b%b HTTP/1.1\r\n%b%bcontent-length: %d\r\n\r\n" % (
        method.encode(),
        prefix,
        target,
        own,
        written,
        length,
    )


def query_of(raw: bytes) -> bytes:
    """A client's query string with its question mark, b"" where there is none. UnsafeHead for bytes
    that a query may not have (RFC 3986, 3.4), and for more than 2,048 of them."""
    if not raw:
        return b""
    if not _QUERY.fullmatch(raw):
        raise UnsafeHead("The URL's query is too long, or has bytes that must be percent-encoded.")
    return b"?" + raw


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
    if text.isascii() and text.isprintable() and " " not in text and "%" not in text:
        return text.encode()
    return quote(text, safe=_VALUE_SAFE, errors="surrogatepass").encode("ascii")
