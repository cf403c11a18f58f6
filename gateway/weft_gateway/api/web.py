"""Restricts requests from web pages. A browser can send requests to a gateway on loopback for any
page that it shows.

Only the gateway's pages may administer. Model endpoints can be opened to pages of other origins
(CORS), which is off by default: other pages may not even send requests that browsers send without a
preflight.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Mapping
from typing import Final

from starlette.types import Message, Scope, Send

from weft_gateway.api.http import respond
from weft_gateway.config import Settings
from weft_gateway.errors import ApiError

_LOOPBACK: Final = frozenset({"localhost", "ip6-localhost", "ip6-loopback"})
_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]@/\s]+)(?::[0-9]{1,5})?")
_READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_KEYS: Final = frozenset({b"authorization", b"x-api-key"})
_WITH_BODY: Final = frozenset({"POST", "PUT", "PATCH"})
# Only /v1/* and /p/{program}/v1/* can be opened to other origins.
_OPEN: Final = re.compile(r"(?:/p/[^/]+)?/v1/.*")
_METHODS: Final = b"GET, POST, PATCH, DELETE"
_NAMES: Final = re.compile(rb"[A-Za-z0-9!#$%&'*+.^_`|~, -]{1,4096}")
_EXPOSED: Final = (
    b"x-request-id, x-weft-program, x-weft-replica, x-weft-saved-s, x-weft-budget-left, retry-after"
)
_MAX_AGE_S: Final = b"600"


def check_admin(
    method: str, headers: Mapping[bytes, bytes], settings: Settings, *, bodiless: bool = False
) -> None:
    """Raise ApiError for a request to /weft/* that a foreign web page can make a browser send.
    bodiless: the route accepts requests without a body, which need no content type: browsers send
    the origin of every POST.

    Without an admin key, every process of this machine may administer, including browsers. So the
    Host must be a name of this machine, which a page behind a rebound DNS name cannot choose.
    """
    host = headers.get(b"host", b"").decode("latin-1")
    if not settings.admin_key and not _is_own(host, settings):
        raise ApiError(
            403,
            "host_not_allowed",
            f"Administration is not served under the name {host[:128]!r}. "
            "Set an admin key (WEFT_ADMIN_KEY).",
        )
    origin = headers.get(b"origin")
    if origin is not None and origin.decode("latin-1").partition("://")[2] != host:
        raise ApiError(
            403, "origin_not_allowed", "Web pages of other origins may not administer the gateway."
        )
    if method in _WITH_BODY and not (bodiless and _is_empty(headers)):
        kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if kind != b"application/json":
            raise ApiError(
                415, "json_required", "The content type of the request must be application/json."
            )


def check_origin(scope: Scope, settings: Settings) -> None:
    """Raise ApiError for a modifying request that a foreign web page can make a browser send.
    Requests with an API key are exempt: for these, the browser first asks for permission (CORS).
    """
    if scope["method"] in _READS:
        return
    for name, _ in scope["headers"]:
        if name == b"origin":
            break
    else:
        return
    headers = dict(scope["headers"])
    if _KEYS.isdisjoint(headers) and not may_connect(headers, settings):
        raise ApiError(
            403,
            "origin_not_allowed",
            "Web pages of other origins may not do that. Add the origin to WEFT_CORS_ORIGINS.",
        )


def _is_empty(headers: Mapping[bytes, bytes]) -> bool:
    """Whether a request has no body and no content type. An empty form has a content type."""
    length = headers.get(b"content-length", b"0")
    return length == b"0" and headers.keys().isdisjoint((b"content-type", b"transfer-encoding"))


def may_connect(headers: Mapping[bytes, bytes], settings: Settings) -> bool:
    """Whether a WebSocket comes from a program, from one of the gateway's pages, or from a page of
    an origin in `cors_origins`. Browsers let every page open a WebSocket to every host.
    """
    origin = headers.get(b"origin", b"").decode("latin-1")
    if not origin or origin.partition("://")[2] == headers.get(b"host", b"").decode("latin-1"):
        return True
    return "*" in settings.cors_origins or origin in settings.cors_origins


def _is_own(host: str, settings: Settings) -> bool:
    """Whether a Host header names this machine: by address, loopback name, or settings. An address
    cannot be rebound.
    """
    found = _HOST.fullmatch(host)
    if found is None:
        return False
    name = found[1].strip("[]").rstrip(".").lower()
    if name in _LOOPBACK or name.endswith(".localhost"):
        return True
    if name == settings.host.lower():
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class Cors:
    """Cross-origin requests to the model endpoints, for pages of the configured origins.
    Credentials that a browser adds itself are never allowed: a page sets API keys in a header.
    """

    def __init__(self, origins: Collection[str]) -> None:
        """origins: in the form that browsers send; "*": any."""
        self._any = "*" in origins
        self._origins = frozenset(origin.encode() for origin in origins)

    def asks(self, scope: Scope) -> bool:
        """Whether the request is a preflight for an open endpoint."""
        if scope["method"] != "OPTIONS" or not _OPEN.fullmatch(scope["path"]):
            return False
        names = {name for name, _ in scope["headers"]}
        return b"origin" in names and b"access-control-request-method" in names

    async def answer(self, scope: Scope, send: Send) -> None:
        """Answer a preflight. A foreign origin gets no permission, and the browser reports that."""
        headers = dict(scope["headers"])
        answer = [(b"vary", b"Origin, Access-Control-Request-Headers")]
        allowed = self._allowed(headers.get(b"origin", b""))
        if allowed:
            answer += [
                (b"access-control-allow-origin", allowed),
                (b"access-control-allow-methods", _METHODS),
                (b"access-control-max-age", _MAX_AGE_S),
            ]
            names = headers.get(b"access-control-request-headers", b"")
            if _NAMES.fullmatch(names):
                answer.append((b"access-control-allow-headers", names))
        await respond(send, 200, answer, b"")

    def wrap(self, scope: Scope, send: Send) -> Send:
        """Wrap `send` to add the headers that let the page read the answer."""
        if not _OPEN.fullmatch(scope["path"]):
            return send
        allowed = self._allowed(dict(scope["headers"]).get(b"origin", b""))

        async def send_allowed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [*message.get("headers", ())]
                if not self._any:
                    headers.append((b"vary", b"Origin"))
                if allowed:
                    headers.append((b"access-control-allow-origin", allowed))
                    headers.append((b"access-control-expose-headers", _EXPOSED))
                message = {**message, "headers": headers}
            await send(message)

        return send_allowed

    def _allowed(self, origin: bytes) -> bytes:
        if self._any:
            return b"*" if origin else b""
        return origin if origin in self._origins else b""
