"""What web pages may do. A browser sends requests to a gateway on loopback for any page it shows.

Administration is for the pages of the gateway itself alone. Model endpoints can be opened to the
pages of other origins (CORS), which is off by default: other pages may not even send a request that
a browser sends without asking first.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Mapping
from typing import Final

from weft_gateway.api.http import Message, Scope, Send, respond
from weft_gateway.config import Settings
from weft_gateway.errors import ApiError

_LOOPBACK: Final = frozenset({"localhost", "ip6-localhost", "ip6-loopback"})
_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]@/\s]+)(?::[0-9]{1,5})?")
_READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_KEYS: Final = frozenset({b"authorization", b"x-api-key"})
_WITH_BODY: Final = frozenset({"POST", "PUT", "PATCH"})
# Only /v1/* and /p/{program}/v1/* are opened to other origins.
_OPEN: Final = re.compile(r"(?:/p/[^/]+)?/v1/.*")
_METHODS: Final = b"GET, POST, DELETE"
_NAMES: Final = re.compile(rb"[A-Za-z0-9!#$%&'*+.^_`|~, -]{1,4096}")
_EXPOSED: Final = b"x-request-id, x-weft-program, x-weft-replica, x-weft-saved-s, retry-after"
_MAX_AGE_S: Final = b"600"


def check_admin(method: str, headers: Mapping[bytes, bytes], settings: Settings) -> None:
    """ApiError for a request to /weft/* that a foreign web page can make a browser send.

    Without an admin key, every process of this machine may administer, and a browser is one. So the
    Host must be a name of this machine, which a page behind a rebound DNS name cannot choose.
    """
    host = headers.get(b"host", b"").decode("latin-1")
    if not settings.admin_key and not _is_own(host, settings):
        raise ApiError(
            403,
            "host_not_allowed",
            f"Administration is not served under the name {host[:128]!r}. "
            "Add it to WEFT_ADMIN_HOSTS, or set an admin key.",
        )
    origin = headers.get(b"origin")
    if origin is not None and origin.decode("latin-1").partition("://")[2] != host:
        raise ApiError(
            403, "origin_not_allowed", "Web pages of other origins may not administer the gateway."
        )
    if method in _WITH_BODY:
        kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if kind != b"application/json":
            raise ApiError(
                415, "json_required", "The content type of the request must be application/json."
            )


def check_origin(scope: Scope, settings: Settings) -> None:
    """ApiError for a request that changes something and that a foreign web page can make a browser
    send. With an API key it cannot: the browser then asks for permission first (CORS)."""
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


def may_connect(headers: Mapping[bytes, bytes], settings: Settings) -> bool:
    """Whether a WebSocket comes from a program, from a page of the gateway itself, or from a page
    of an origin in `cors_origins`. Browsers let every page open a WebSocket to every host."""
    origin = headers.get(b"origin", b"").decode("latin-1")
    if not origin or origin.partition("://")[2] == headers.get(b"host", b"").decode("latin-1"):
        return True
    return "*" in settings.cors_origins or origin in settings.cors_origins


def _is_own(host: str, settings: Settings) -> bool:
    """Whether a Host header names this machine: by an address, a loopback name, or the settings.
    An address cannot be rebound."""
    found = _HOST.fullmatch(host)
    if found is None:
        return False
    name = found[1].strip("[]").rstrip(".").lower()
    if name in _LOOPBACK or name.endswith(".localhost"):
        return True
    if name in {allowed.lower() for allowed in (settings.host, *settings.admin_hosts)}:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class Cors:
    """Cross-origin requests to the model endpoints, for pages of some origins. Credentials that a
    browser adds by itself are never allowed: API keys come in a header that the page sets."""

    def __init__(self, origins: Collection[str]) -> None:
        """origins: as browsers send them; "*": any."""
        self._any = "*" in origins
        self._origins = frozenset(origin.encode() for origin in origins)

    def asks(self, scope: Scope) -> bool:
        """Whether the request is a preflight of an endpoint that is open."""
        if scope["method"] != "OPTIONS" or not _OPEN.fullmatch(scope["path"]):
            return False
        names = {name for name, _ in scope["headers"]}
        return b"origin" in names and b"access-control-request-method" in names

    async def answer(self, scope: Scope, send: Send) -> None:
        """Answer a preflight. A foreign origin gets no permission, which the browser then tells."""
        headers = dict(scope["headers"])
        told = [(b"vary", b"Origin, Access-Control-Request-Headers")]
        allowed = self._allowed(headers.get(b"origin", b""))
        if allowed:
            told += [
                (b"access-control-allow-origin", allowed),
                (b"access-control-allow-methods", _METHODS),
                (b"access-control-max-age", _MAX_AGE_S),
            ]
            names = headers.get(b"access-control-request-headers", b"")
            if _NAMES.fullmatch(names):
                told.append((b"access-control-allow-headers", names))
        await respond(send, 200, told, b"")

    def told(self, scope: Scope, send: Send) -> Send:
        """`send`, which also tells the browser whether the page may read the answer."""
        if not _OPEN.fullmatch(scope["path"]):
            return send
        allowed = self._allowed(dict(scope["headers"]).get(b"origin", b""))

        async def tell(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [*message.get("headers", ())]
                if not self._any:
                    headers.append((b"vary", b"Origin"))
                if allowed:
                    headers.append((b"access-control-allow-origin", allowed))
                    headers.append((b"access-control-expose-headers", _EXPOSED))
                message = {**message, "headers": headers}
            await send(message)

        return tell

    def _allowed(self, origin: bytes) -> bytes:
        if self._any:
            return b"*" if origin else b""
        return origin if origin in self._origins else b""
