"""Requests that have one answer, and requests that may be repeated. Pure."""

from __future__ import annotations

from weft_run.language.graph import LangGraph, Llm, Sql
from weft_run.language.requests import Request, SqlRequest
from weft_run.language.signature import signature
from weft_run.plan.frames import Unit


def shared_key(unit: Unit, request: Request, written: frozenset[str]) -> str | None:
    """Return the identity of a request that is made once for all operators and rows that need it,
    None if each of them must make it. Sampled calls and tools with effects are never merged.
    """
    if isinstance(request, SqlRequest) and request.connection in written:
        return None
    return signature(request, unit.declared.idempotent)


def is_safe(unit: Unit) -> bool:
    """Whether a request may be repeated: it has no effect, or its effect is idempotent."""
    body = unit.body
    if isinstance(body, Sql) and not body.write:
        return True
    return isinstance(body, Llm | LangGraph) or unit.declared.idempotent
