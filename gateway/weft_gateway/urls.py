"""Which URLs name a replica, a Redis server, or an origin of web pages. Nothing is looked up or
connected to.

Every function raises ValueError with one line that says what is wrong and repeats no password.
"""

from __future__ import annotations

import re
from hashlib import sha256
from ipaddress import IPv4Address, IPv6Address
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

_PORTS: Final = {"http": 80, "https": 443}
_PRINTABLE: Final = re.compile(r"[!-~]*")
# RFC 1123, 2.1; underscores are in many names of services all the same.
_LABEL: Final = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)")
_DATABASE: Final = re.compile(r"/?|/[0-9]+")
_LONGEST_HOST: Final = 253
_LONGEST_NAME: Final = 64
_NAME: Final = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._:-]{{0,{_LONGEST_NAME - 1}}}")
# In a name made of an address.
_NOT_IN_NAME: Final = re.compile(r"[^A-Za-z0-9._:/\[\]~-]")


def replica_url(text: str) -> str:
    """A replica's base URL, without the `/v1` at its end."""
    parts = _split(text, ("http", "https"))
    if "@" in parts.netloc:
        raise ValueError(
            f"{parts.scheme}://...@{parts.hostname}: a replica gets no password from its URL, "
            "but WEFT_REPLICA_API_KEY"
        )
    _check_host(parts, text)
    if "?" in text:
        raise ValueError(f"{text!r} has a query: a base URL ends with its path")
    return text.rstrip("/").removesuffix("/v1").rstrip("/")


def address(url: str) -> tuple[str, str, int, str]:
    """Where a replica's URL leads, the same however it is written."""
    parts = urlsplit(url)
    port = parts.port or _PORTS[parts.scheme]
    return parts.scheme, parts.hostname or "", port, parts.path.rstrip("/")


def named_replica(text: str) -> tuple[str, str]:
    """A replica's name and base URL, of `NAME=URL` or of `URL`, whose name comes from its address.

    A name goes into a header (`x-weft-replica`), into metrics' labels and into the process table.
    It is the same for every gateway that uses this address, wherever in the list that stands.
    """
    name, equals, url = text.partition("=")
    if not equals or "/" in name:
        cleaned = replica_url(text)
        return _name_of(cleaned), cleaned
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{name[:_LONGEST_NAME]!r} is not a replica's name: it has 1 to {_LONGEST_NAME} "
            "letters, digits and . _ : - and begins with a letter or a digit"
        )
    return name, replica_url(url)


def _name_of(url: str) -> str:
    _, host, port, path = address(url)
    place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    name = _NOT_IN_NAME.sub("-", place + path)
    if len(name) <= _LONGEST_NAME:
        return name
    # Long ones often begin or end alike.
    mark = sha256(f"{place}{path}".encode()).hexdigest()[:12]
    return f"{name[: _LONGEST_NAME - 13]}-{mark}"


def origin(text: str) -> str:
    """A web page's origin as browsers send it (scheme, host, and a port that is not the default),
    or "*" for any."""
    if text == "*":
        return text
    parts = _split(text, ("http", "https"))
    _check_host(parts, text)
    if parts.path.strip("/") or "?" in text or "@" in parts.netloc:
        raise ValueError(f"{text!r} is not an origin: it has a scheme, a host and a port only")
    port = "" if parts.port in (None, _PORTS[parts.scheme]) else f":{parts.port}"
    host = parts.hostname or ""
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}{port}"


def redis_url(text: str) -> str:
    """A Redis server's URL, as redis-py takes it."""
    parts = _split(text, ("redis", "rediss", "unix"))
    if parts.scheme == "unix":
        if not parts.path:
            raise ValueError("unix:// needs the path of a socket")
    else:
        _check_host(parts, _shown(text))
        if not _DATABASE.fullmatch(parts.path):
            raise ValueError(f"{parts.path[1:]!r} is not the number of a database")
    # Needed only where there is a table on Redis.
    from redis.asyncio import ConnectionPool

    try:
        # What it asks for in its query is looked at when a connection is made, before it connects.
        make_connection: Any = ConnectionPool.from_url(text).make_connection
        make_connection()
    except (ValueError, TypeError) as error:
        what = str(error).rpartition("unexpected keyword argument ")[2]
        raise ValueError(f"its query is not understood: {what}") from None
    return text


def _split(text: str, schemes: tuple[str, ...]) -> SplitResult:
    if not _PRINTABLE.fullmatch(text):
        raise ValueError("a URL has no spaces, line ends or other special characters")
    try:
        parts = urlsplit(text)
    except ValueError as error:
        raise ValueError(f"{_shown(text)!r} is not a URL: {error}") from None
    if parts.scheme not in schemes or "://" not in text:
        starts = " or ".join(f"{scheme}://" for scheme in schemes)
        raise ValueError(f"{_shown(text)!r} does not start with {starts}")
    if "#" in text:
        raise ValueError(f"{_shown(text)!r} has a fragment (#), which means nothing to a server")
    return parts


def _check_host(parts: SplitResult, shown: str) -> None:
    host = parts.hostname
    if not host:
        raise ValueError(f"{shown!r} names no host")
    try:
        wrong = parts.port == 0 or parts.netloc.endswith(":")
    except ValueError:
        wrong = True
    if wrong:
        raise ValueError(f"{shown!r}: a port is a number from 1 to 65535")
    labels = host.removesuffix(".").split(".")
    try:
        if ":" in host:
            IPv6Address(host)
        elif labels[-1].isdecimal():
            IPv4Address(host)
        elif len(host) > _LONGEST_HOST or not all(map(_LABEL.fullmatch, labels)):
            raise ValueError
    except ValueError:
        raise ValueError(f"{host!r} is not the name or the address of a host") from None


def _shown(text: str) -> str:
    return text.rpartition("@")[2]
