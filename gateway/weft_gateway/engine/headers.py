"""Selects the headers that pass through the gateway in both directions. Pure.

Both directions use allow lists. Towards the engine: headers that engines read, and none that could
carry a credential under an unknown name. Towards the client: headers that describe the answer or
its limits. Other headers concern the engine's host or its connection: cookies, CORS, HSTS and
redirects would apply to the gateway's host in clients' browsers.
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
# An Anthropic or OpenAI prefix does not make a credential harmless. `x-vllm-priority` is used as a
# hint: vLLM's priority policy would order all tenants by it.
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

# Bytes allowed in a URL's query (RFC 3986, 3.4). A request line contains no other bytes.
_QUERY: Final = re.compile(rb"(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2}){0,2048}")
# A request target: one path and query without spaces.
_TARGET: Final = re.compile(rb"/[!-~]*")
# Bytes that no header field may contain. A tab is valid inside a value.
_CONTROLS: Final = bytes([*range(0x09), *range(0x0A, 0x20), 0x7F])

_SANE_ID: Final = re.compile(rb"[!-~]{1,128}")
_VALUE_SAFE: Final = "".join(chr(c) for c in range(0x21, 0x7F) if chr(c) != "%")


class UnsafeHead(ValueError):
    """An engine could interpret the request head differently than intended."""


def for_engine(headers: Headers) -> Headers:
    """Return the client's headers to forward. Names must be in lower case, as in ASGI."""
    return [
        pair
        for pair in headers
        if (name := pair[0]) in _TO_ENGINE
        or (name.startswith(_TO_ENGINE_PREFIXES) and not _NOT_TO_ENGINE.search(name))
    ]


def request_head(
    method: str, prefix: bytes, target: bytes, own: bytes, fields: Headers, length: int
) -> bytes:
    """Build the head of a request. The gateway writes every request head to an engine here.

    prefix: path of the engine's base URL. target: path and query. own: complete lines without
    client data. length: body size in bytes. Raises UnsafeHead for a target with bytes other than
    printable ASCII, and for a control byte in a field: it would end the field or the head.
    """
    if not _TARGET.fullmatch(target):
        raise UnsafeHead("The request target has bytes that are not allowed in a request line.")
    written = b"".join([b"%b: %b\r\n" % pair for pair in fields])
    # Each line has two control bytes (CR LF). Any further one comes from a client.
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
    """Return a client's query string with its question mark, b"" if empty. Raises UnsafeHead for
    bytes that are invalid in a query (RFC 3986, 3.4) and for more than 2,048 bytes.
    """
    if not raw:
        return b""
    if not _QUERY.fullmatch(raw):
        raise UnsafeHead("The URL's query is too long or has bytes that must be percent-encoded.")
    return b"?" + raw


def for_client(headers: Headers, *, is_error: bool = False) -> tuple[Headers, bytes | None]:
    """Return the engine's headers to forward, and the value of the report header, if present.
    is_error: the body is replaced by the API's error.
    """
    report = None
    kept = []
    for pair in headers:
        name = pair[0]
        if name in _TO_CLIENT or name.startswith(_TO_CLIENT_PREFIXES):
            kept.append(pair)
        elif name == _REPORT:
            report = pair[1]
    if is_error:
        kept = [pair for pair in kept if not pair[0].startswith(b"content-")]
        kept.append((b"content-type", b"application/json"))
    return kept, report


def sane_request_id(value: bytes | None) -> bytes | None:
    """Return a client's request id if it is at most 128 printable ASCII bytes without spaces."""
    return value if value is not None and _SANE_ID.fullmatch(value) else None


def header_safe(text: str) -> bytes:
    """Return `text` as a header value: percent-encoded UTF-8 unless it is plain ASCII."""
    if text.isascii() and text.isprintable() and " " not in text and "%" not in text:
        return text.encode()
    return quote(text, safe=_VALUE_SAFE, errors="surrogatepass").encode("ascii")
