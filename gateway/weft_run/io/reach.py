"""Connections and hosts that `sql` and `http` operators may reach. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from weft_run.language.graph import Http
from weft_run.language.templates import Constant
from weft_run.yaml_errors import nearest

_URL: Final = re.compile(r"(https?)://([^/?#\s{}]+)[/?#]", re.IGNORECASE)
_PORTS: Final = {"http": 80, "https": 443}


def no_connection(name: str, connections: Collection[str]) -> str:
    """Return why a connection cannot be used, "" if it can."""
    return (
        "" if name in connections else f"no connection is named {name!r}{_near(name, connections)}"
    )


def no_host(body: Http, hosts: Collection[str]) -> str:
    """Return why a request cannot be sent, "" if it may be: a host from a template is known only
    when the row runs. hosts: `host`, which allows all ports, or `host:port`, in lower case.
    """
    if not hosts:
        return "no host is allowed for HTTP requests"
    found = _URL.match(_beginning(body))
    if found is None:
        return ""
    host, port = _place(found)
    place = f"{host}:{port}"
    return "" if {host, place} & set(hosts) else f"{place} is not allowed{_near(place, hosts)}"


def _beginning(body: Http) -> str:
    """Return the constant beginning of a URL."""
    part = body.url.parts[0] if body.url.parts else None
    text = part.text if isinstance(part, Constant) else ""
    return text if len(body.url.parts) > 1 else f"{text}/"


def _place(found: re.Match[str]) -> tuple[str, str]:
    place = found[2].lower().rpartition("@")[2]
    host, colon, port = place.rpartition(":")
    if colon and port.isdigit():
        return host, port
    return place, str(_PORTS[found[1].lower()])


def _near(name: str, known: Collection[str]) -> str:
    return nearest(name, sorted(known)) if known else "; none is configured"
