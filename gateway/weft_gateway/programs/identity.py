"""Whose call is it? Resolves the alias table's rows 1 to 4 and 6. Pure."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any, Final

from weft_gateway.model import ProgramKey
from weft_gateway.model.record import record
from weft_gateway.programs.aliases import BODY, HEADERS, TRACEPARENT
from weft_gateway.programs.ids import IdentityError, from_bytes, from_json
from weft_gateway.programs.response_store import ResponseStore

__all__ = ["Identity", "IdentityError", "ResponseStore", "resolve", "tenant_of"]

MAIN_THREAD: Final = "main"
_TRUE: Final = frozenset({b"1", b"true", b"yes", b"on"})
# W3C Trace Context: a version that is not ff, a trace id that is not all zeros, the rest.
_TRACE: Final = re.compile(
    rb"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?"
)
_IN_HEADERS: Final = frozenset(alias.program for alias in HEADERS)
_IN_BODY: Final = frozenset(row.program[0] for row in BODY)
# Objects in which an id is looked for by another row: no malformed ids.
_OBJECTS: Final = frozenset(row.program[:-1] for row in BODY)


@record
class Identity:
    """Whose call it is. source: the name that said so, as in the alias table; "path" or "none".
    ephemeral: nobody named a program and the answer cannot be continued by its id, so the program
    is this call. final: the client says that this is the program's last call."""

    key: ProgramKey
    thread: str
    parent: str
    source: str
    ephemeral: bool
    final: bool = False


def tenant_of(api_key: str) -> str:
    """The tenant of an API key: 16 hexadecimal digits of its digest, or "public" without one."""
    if not api_key:
        return "public"
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
    """Find the call's program and thread; the first row that matches wins.

    headers: as ASGI gives them, names in lower case. path_program: from `/p/{program}/...`.
    traceparent: row 4 counts. chained: answers of this endpoint are stored unless the client says
    otherwise (`store`), and can be continued by their id. Ids are opaque (see `ids`) and count per
    tenant; an empty one is as good as none. Raises IdentityError.
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
    # Most requests carry none of these names, which one look tells.
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
    # Row 6. An answer of the Responses API that is stored may be continued by its id; its program
    # waits for that, so that the chain's first call counts too.
    store = body.get("store")
    continues = "input" in body and (chained if store is None else store is True)
    program = os.urandom(16).hex()
    return Identity(ProgramKey(tenant, program), MAIN_THREAD, "", "none", not continues)


def _header(headers: Mapping[bytes, bytes], name: bytes) -> str:
    """The id in a header, "" where there is none."""
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
