"""Whose call is it? Resolves the alias table's rows 1 to 4 and 6. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final
from uuid import uuid4

from gateway.model import ProgramKey
from gateway.programs.aliases import BODY, HEADERS, TRACEPARENT
from gateway.programs.chains import ChainRoots

__all__ = ["MAX_ID_BYTES", "ChainRoots", "Identity", "IdentityError", "resolve", "tenant_of"]

MAX_ID_BYTES: Final = 256
MAIN_THREAD: Final = "main"
_TRUE: Final = frozenset({b"1", b"true", b"yes", b"on"})


class IdentityError(ValueError):
    """An id that cannot be taken. `code`: `id_too_long` or `bad_id`."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose call it is. source: the name that said so. ephemeral: nobody named a program and the
    answer cannot be continued by its id, so the program is this call. final: the client says that
    this is the program's last call."""

    key: ProgramKey
    thread: str
    parent: str
    source: str
    ephemeral: bool
    final: bool = False


def tenant_of(api_key: str) -> str:
    """The tenant of an API key: 16 hexadecimal digits of its digest, or "public" without one."""
    return (
        sha256(api_key.encode("utf-8", "surrogateescape")).hexdigest()[:16]
        if api_key
        else ("public")
    )


def resolve(
    *,
    tenant: str,
    headers: Iterable[tuple[bytes, bytes]],
    body: Mapping[str, Any],
    path_program: str | None,
    chains: ChainRoots,
    traceparent: bool = False,
) -> Identity:
    """Find the call's program and thread; the first row that matches wins.

    headers: as ASGI gives them, names in lower case. path_program: from `/p/{program}/...`.
    Ids are opaque, at most MAX_ID_BYTES bytes, and count per tenant; an empty one is as good as
    none. Raises IdentityError.
    """
    by_name = dict(headers)
    if path_program:
        own = HEADERS[0]
        return Identity(
            ProgramKey(tenant, _checked(path_program, "the path's program")),
            _header(by_name, own.thread) or MAIN_THREAD,
            _header(by_name, own.parent),
            "path",
            ephemeral=False,
        )
    for alias in HEADERS:
        if alias.program in by_name:
            program = _header(by_name, alias.program)
            if program:
                return Identity(
                    ProgramKey(tenant, program),
                    _header(by_name, alias.thread) or MAIN_THREAD,
                    _header(by_name, alias.parent),
                    alias.program.decode(),
                    ephemeral=False,
                    final=by_name.get(alias.final, b"").strip().lower() in _TRUE,
                )
    for row in BODY:
        if row.program[0] in body:
            program = _field(body, row.program)
            if program:
                return Identity(
                    ProgramKey(tenant, chains.root(tenant, program) if row.chained else program),
                    _field(body, row.thread) or MAIN_THREAD,
                    _field(body, row.parent),
                    ".".join(row.program),
                    ephemeral=False,
                )
    if traceparent and TRACEPARENT in by_name:
        parts = by_name[TRACEPARENT].decode("latin-1").split("-")
        if len(parts) >= 4 and len(parts[1]) == 32:
            return Identity(
                ProgramKey(tenant, parts[1]), MAIN_THREAD, "", "traceparent", ephemeral=False
            )
    # Row 6. An answer that is stored by its id may be continued; its program waits for that.
    continues = "input" in body and "messages" not in body and body.get("store") is True
    return Identity(
        ProgramKey(tenant, uuid4().hex), MAIN_THREAD, "", "none", ephemeral=not continues
    )


def _header(headers: Mapping[bytes, bytes], name: bytes) -> str:
    value = headers.get(name, b"") if name else b""
    if not value:
        return ""
    if len(value) > MAX_ID_BYTES:
        raise _too_long(name.decode(), len(value))
    # Clients that send text beyond ASCII send UTF-8; any other bytes stay distinct as Latin-1.
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _field(body: Mapping[str, Any], path: tuple[str, ...]) -> str:
    value: Any = body
    for key in path:
        if not isinstance(value, Mapping):
            return ""
        value = value.get(key)
        if value is None:
            return ""
    if not path or isinstance(value, Mapping):
        return ""
    return _checked(value, ".".join(path))


def _checked(value: Any, name: str) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise IdentityError("bad_id", f"{name} must be a string, got {type(value).__name__}")
    text = str(value)
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > MAX_ID_BYTES:
        raise _too_long(name, size)
    return text


def _too_long(name: str, size: int) -> IdentityError:
    return IdentityError(
        "id_too_long", f"{name} has {size} bytes; at most {MAX_ID_BYTES} are allowed"
    )
