"""Validates URLs of replicas, Redis servers and web origins. Performs no lookups and opens no
connections.

Every function raises ValueError with one line that describes the problem and contains no password.
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import sha256
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

_PORTS: Final = {"http": 80, "https": 443}
_PRINTABLE: Final = re.compile(r"[!-~]*")
# RFC 1123, 2.1. Many service names contain underscores nevertheless.
_LABEL: Final = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)")
# The hosts of HTTP operators in workflows.
_ALLOWED: Final = re.compile(r"([\w.-]+|\[[0-9a-f:.]+\])(?::([0-9]{1,9}))?")
_DATABASE: Final = re.compile(r"/?|/[0-9]+")
_LONGEST_HOST: Final = 253
_LONGEST_NAME: Final = 64
_NAME: Final = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._:-]{{0,{_LONGEST_NAME - 1}}}")
# Characters replaced in a name made from an address.
_NOT_IN_NAME: Final = re.compile(r"[^A-Za-z0-9._:/\[\]~-]")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address to listen on. Unlike the other functions, it
    accepts any text.
    """
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def replica_url(text: str) -> str:
    """Return a replica's base URL without the trailing `/v1`."""
    parts = _split(text, ("http", "https"))
    if "@" in parts.netloc:
        raise ValueError(
            f"{parts.scheme}://...@{parts.hostname}: a replica URL cannot contain a password; "
            "set WEFT_REPLICA_API_KEY"
        )
    _check_host(parts, text)
    if "?" in text:
        raise ValueError(f"{text!r} has a query: a base URL must end with its path")
    return text.rstrip("/").removesuffix("/v1").rstrip("/")


@lru_cache(maxsize=4096)
def address(url: str) -> tuple[str, str, int, str]:
    """Return the address of a replica's URL, the same for all spellings."""
    parts = urlsplit(url)
    port = parts.port or _PORTS[parts.scheme]
    return parts.scheme, parts.hostname or "", port, parts.path.rstrip("/")


def named_replica(text: str) -> tuple[str, str]:
    """Return name and base URL from `NAME=URL` or `URL`. Without NAME, the address is the name.

    The name appears in a header (`x-weft-replica`), in metric labels and in the process table. It
    is the same in all gateways that use this address, independent of the position in the list.
    """
    name, equals, url = text.partition("=")
    if not equals or "/" in name:
        cleaned = replica_url(text)
        return _name_of(cleaned), cleaned
    return replica_name(name), replica_url(url)


def replica_name(name: str) -> str:
    """Return the name of a replica if it is valid."""
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{name[:_LONGEST_NAME]!r} is not a valid replica name: use 1 to {_LONGEST_NAME} "
            "letters, digits and . _ : -, beginning with a letter or a digit"
        )
    return name


def _name_of(url: str) -> str:
    _, host, port, path = address(url)
    place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    name = _NOT_IN_NAME.sub("-", place + path)
    if len(name) <= _LONGEST_NAME:
        return name
    # Long names often share a prefix or suffix.
    mark = sha256(f"{place}{path}".encode()).hexdigest()[:12]
    return f"{name[: _LONGEST_NAME - 13]}-{mark}"


def origin(text: str) -> str:
    """Return a web page's origin as browsers send it (scheme, host, and a non-default port), or "*"
    for any.
    """
    if text == "*":
        return text
    parts = _split(text, ("http", "https"))
    _check_host(parts, text)
    if parts.path.strip("/") or "?" in text or "@" in parts.netloc:
        raise ValueError(
            f"{text!r} is not an origin: an origin has only a scheme, a host and a port"
        )
    port = "" if parts.port in (None, _PORTS[parts.scheme]) else f":{parts.port}"
    host = parts.hostname or ""
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}{port}"


def allowed_host(text: str) -> tuple[str, str]:
    """Return the host and the port of `HOST` or `HOST:PORT`, in lower case; "" for no port."""
    found = _ALLOWED.fullmatch(text.lower())
    if found is None:
        raise ValueError(
            f"{text!r} must be HOST or HOST:PORT, without scheme, path, spaces and wildcards; "
            "IPv6 addresses are in brackets"
        )
    port = int(found[2]) if found[2] else None
    if port is not None and not 1 <= port <= 65_535:
        raise ValueError(f"{text!r}: a port must be a number from 1 to 65535")
    return found[1], str(port or "")


def redis_url(text: str) -> str:
    """Return a Redis server's URL that redis-py accepts."""
    parts = _split(text, ("redis", "rediss", "unix"))
    if parts.scheme == "unix":
        if not parts.path:
            raise ValueError("unix:// needs a socket path")
    else:
        _check_host(parts, _shown(text))
        if not _DATABASE.fullmatch(parts.path):
            raise ValueError(f"{parts.path[1:]!r} is not a database number")
    # Required only with a table on Redis.
    from redis.asyncio import ConnectionPool

    try:
        # redis-py validates the query when it creates a connection, before it connects.
        make_connection: Any = ConnectionPool.from_url(text).make_connection
        make_connection()
    except (ValueError, TypeError) as error:
        what = str(error).rpartition("unexpected keyword argument ")[2]
        raise ValueError(f"its query is invalid: {what}") from None
    return text


def _split(text: str, schemes: tuple[str, ...]) -> SplitResult:
    if not _PRINTABLE.fullmatch(text):
        raise ValueError("a URL cannot contain spaces, line ends or other special characters")
    try:
        parts = urlsplit(text)
    except ValueError as error:
        raise ValueError(f"{_shown(text)!r} is not a URL: {error}") from None
    if parts.scheme not in schemes or "://" not in text:
        starts = " or ".join(f"{scheme}://" for scheme in schemes)
        raise ValueError(f"{_shown(text)!r} does not start with {starts}")
    if "#" in text:
        raise ValueError(f"{_shown(text)!r} has a fragment (#), which servers do not receive")
    return parts


def _check_host(parts: SplitResult, shown: str) -> None:
    host = parts.hostname
    if not host:
        raise ValueError(f"{shown!r} has no host")
    try:
        wrong = parts.port == 0 or parts.netloc.endswith(":")
    except ValueError:
        wrong = True
    if wrong:
        raise ValueError(f"{shown!r}: a port must be a number from 1 to 65535")
    labels = host.removesuffix(".").split(".")
    try:
        if ":" in host:
            IPv6Address(host)
        elif labels[-1].isdecimal():
            IPv4Address(host)
        elif len(host) > _LONGEST_HOST or not all(map(_LABEL.fullmatch, labels)):
            raise ValueError
    except ValueError:
        raise ValueError(f"{host!r} is not a valid host name or address") from None


def _shown(text: str) -> str:
    return text.rpartition("@")[2]
