"""Resolves a call's program and thread from the table of names (`aliases`). Pure."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from hashlib import sha256
from typing import Any, Final

from weft_gateway.model import ProgramKey
from weft_gateway.model.record import record
from weft_gateway.programs.aliases import BODY, HEADERS, Decides, Name, Where
from weft_gateway.programs.ids import from_bytes, from_json
from weft_gateway.programs.response_store import ResponseStore

MAIN_THREAD: Final = "main"
# The tenant of all clients without a key.
ANONYMOUS: Final = "public"
_TRUE: Final = frozenset({b"1", b"true", b"yes", b"on"})
_SESSIONS: Final = tuple(row for row in HEADERS if row.decides is Decides.PROGRAM)
_FIELDS: Final = tuple(row for row in BODY if row.decides is Decides.PROGRAM)
_PLACES: Final = tuple(row for row in (*HEADERS, *BODY) if row.decides is Decides.PLACEMENT)
_IN_HEADERS: Final = frozenset(row.where for row in _SESSIONS)
_IN_BODY: Final = frozenset(row.where[0] for row in _FIELDS)
# Objects in which another row looks for an id. They are not malformed ids.
_OBJECTS: Final = frozenset(row.where[:-1] for row in _FIELDS)


@record
class Identity:
    """The program and thread of a call. source: the name in the table that supplied the program,
    or "path" or "none". ephemeral: the call names no program and its answer cannot be continued by
    id, so the program consists of this call. final: the client declares this the program's last
    call.
    """

    key: ProgramKey
    thread: str
    parent: str
    source: str
    ephemeral: bool
    final: bool = False


def tenant_of(api_key: str) -> str:
    """Return the tenant of an API key: 16 hexadecimal digits of its SHA-256, or "public" without a
    key.
    """
    if not api_key:
        return ANONYMOUS
    return sha256(api_key.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def resolve(
    *,
    tenant: str,
    headers: Iterable[tuple[bytes, bytes]],
    body: Mapping[str, Any],
    path_program: str | None,
    chains: ResponseStore,
    chained: bool = False,
) -> Identity:
    """Find the call's program and thread. The first name of a program wins.

    headers: from ASGI, names in lower case. path_program: from `/p/{program}/...`. chained:
    whether this endpoint stores answers, unless the body's `store` says otherwise, so that clients
    can continue them by id. Ids are opaque (see `ids`) and scoped to the tenant. An empty id counts
    as missing. Raises IdentityError.
    """
    by_name = dict(headers)
    if path_program:
        program = from_json(path_program, "program")
        return _identity(HEADERS[0], "path", program, tenant, by_name, body)
    # Most requests carry none of these names; two set operations show it.
    for row in () if _IN_HEADERS.isdisjoint(by_name) else _SESSIONS:
        if row.where in by_name and (program := _read(by_name, body, row.where)):
            return _identity(row, row.text, program, tenant, by_name, body)
    for row in () if _IN_BODY.isdisjoint(body) else _FIELDS:
        if row.where[0] in body and (program := _read(by_name, body, row.where)):
            found = _identity(row, row.text, program, tenant, by_name, body)
            if not row.chained:
                return found
            program, thread = chains.place(tenant, program)
            return replace(found, key=ProgramKey(tenant, program), thread=thread or MAIN_THREAD)
    # A stored answer of the Responses API can be continued by its id. Its program is therefore not
    # ephemeral, so that it includes the chain's first call.
    store = body.get("store")
    continues = "input" in body and (chained if store is None else store is True)
    program = os.urandom(16).hex()
    return Identity(ProgramKey(tenant, program), MAIN_THREAD, "", "none", not continues)


def _identity(
    row: Name,
    source: str,
    program: str,
    tenant: str,
    headers: Mapping[bytes, bytes],
    body: Mapping[str, Any],
) -> Identity:
    """Return the identity of a program by its name and the companions of the name."""
    thread = _read(headers, body, row.thread)
    parent = _read(headers, body, row.parent or row.above)
    if row.from_main and thread and not parent:
        parent = MAIN_THREAD
    final = headers.get(row.final, b"").strip().lower() in _TRUE
    key = ProgramKey(tenant, program)
    return Identity(key, thread or MAIN_THREAD, parent, source, ephemeral=False, final=final)


def place_of(headers: Iterable[tuple[bytes, bytes]], body: Mapping[str, Any]) -> str | bytes:
    """Return the first name that decides the placement of a call, "" if none. A malformed one is
    ignored: it is a hint.
    """
    by_name = dict(headers)
    for row in _PLACES:
        found = _value(by_name, body, row.where)
        if found and isinstance(found, str | bytes):
            return found
    return ""


def _read(headers: Mapping[bytes, bytes], body: Mapping[str, Any], where: Where | None) -> str:
    """Return the id in a header or a member of the body, "" if missing. Raises IdentityError."""
    if where is None:
        return ""
    if isinstance(where, bytes):
        header = headers.get(where)
        return from_bytes(header, where) if header else ""
    if (value := _value(headers, body, where)) is None:
        return ""
    if isinstance(value, Mapping) and where in _OBJECTS:
        return ""
    return from_json(value, ".".join(where))


def _value(headers: Mapping[bytes, bytes], body: Mapping[str, Any], where: Where) -> Any:
    if isinstance(where, bytes):
        return headers.get(where)
    value: Any = body
    for key in where:
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value
