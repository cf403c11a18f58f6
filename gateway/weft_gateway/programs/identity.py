"""Resolves a call's program and thread from the alias table, rows 1 to 4 and 6. Pure."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any, Final

from weft_gateway.model import ProgramKey
from weft_gateway.model.record import record
from weft_gateway.programs.aliases import BODY, HEADERS, TRACEPARENT
from weft_gateway.programs.ids import from_bytes, from_json
from weft_gateway.programs.response_store import ResponseStore

MAIN_THREAD: Final = "main"
# The tenant of all clients without a key.
ANONYMOUS: Final = "public"
_TRUE: Final = frozenset({b"1", b"true", b"yes", b"on"})
# W3C Trace Context: a version other than ff, a trace id that is not all zeros, the rest.
_TRACE: Final = re.compile(
    rb"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?"
)
_IN_HEADERS: Final = frozenset(alias.program for alias in HEADERS)
_IN_BODY: Final = frozenset(row.program[0] for row in BODY)
# Objects in which another row looks for an id. They are not malformed ids.
_OBJECTS: Final = frozenset(row.program[:-1] for row in BODY)


@record
class Identity:
    """The program and thread of a call. source: the name in the alias table that supplied the
    program, or "path" or "none". ephemeral: the call names no program and its answer cannot be
    continued by id, so the program consists of this call. final: the client declares this the
    program's last call.
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
    traceparent: bool = False,
    chained: bool = False,
) -> Identity:
    """Find the call's program and thread. The first matching row wins.

    headers: from ASGI, names in lower case. path_program: from `/p/{program}/...`. traceparent:
    whether row 4 applies. chained: whether this endpoint stores answers, unless the body's `store`
    says otherwise, so that clients can continue them by id. Ids are opaque (see `ids`) and scoped
    to the tenant. An empty id counts as missing. Raises IdentityError.
    """
    by_name = dict(headers)
    if path_program:
        own = HEADERS[0]
        return Identity(
            ProgramKey(tenant, from_json(path_program, "program")),
            _header(by_name, own.thread) or MAIN_THREAD,
            _header(by_name, own.parent),
            "path",
            ephemeral=False,
        )
    # Most requests carry none of these names; one set operation shows it.
    for alias in () if _IN_HEADERS.isdisjoint(by_name) else HEADERS:
        if alias.program in by_name:
            program = _header(by_name, alias.program)
            if program:
                thread = _header(by_name, alias.thread)
                parent = _header(by_name, alias.parent)
                if alias.from_main and thread and not parent:
                    parent = MAIN_THREAD
                return Identity(
                    ProgramKey(tenant, program),
                    thread or MAIN_THREAD,
                    parent,
                    alias.program.decode(),
                    ephemeral=False,
                    final=by_name.get(alias.final, b"").strip().lower() in _TRUE,
                )
    for row in () if _IN_BODY.isdisjoint(body) else BODY:
        if row.program[0] in body:
            program = _field(body, row.program)
            if program:
                thread = _field(body, row.thread)
                if row.chained:
                    program, thread = chains.place(tenant, program)
                return Identity(
                    ProgramKey(tenant, program),
                    thread or MAIN_THREAD,
                    _field(body, row.parent),
                    ".".join(row.program),
                    ephemeral=False,
                )
    if traceparent and TRACEPARENT in by_name:
        trace = _TRACE.fullmatch(by_name[TRACEPARENT].strip())
        if trace:
            program = trace[1].decode()
            return Identity(
                ProgramKey(tenant, program), MAIN_THREAD, "", "traceparent", ephemeral=False
            )
    # Row 6. A stored answer of the Responses API can be continued by its id. Its program is
    # therefore not ephemeral, so that it includes the chain's first call.
    store = body.get("store")
    continues = "input" in body and (chained if store is None else store is True)
    program = os.urandom(16).hex()
    return Identity(ProgramKey(tenant, program), MAIN_THREAD, "", "none", not continues)


def _header(headers: Mapping[bytes, bytes], name: bytes) -> str:
    """Return the id in a header, "" if missing."""
    value = headers.get(name, b"") if name else b""
    return from_bytes(value, name) if value else ""


def _field(body: Mapping[str, Any], path: tuple[str, ...]) -> str:
    value: Any = body
    for key in path:
        if not isinstance(value, Mapping):
            return ""
        value = value.get(key)
        if value is None:
            return ""
    if not path or (isinstance(value, Mapping) and path in _OBJECTS):
        return ""
    return from_json(value, ".".join(path))
