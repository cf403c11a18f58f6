"""Requests that have one answer, and requests that may be repeated. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from weft_gateway.workflows.frames import Unit
from weft_gateway.workflows.graph import Body, Branch, LangGraph, Llm, Loop, Sql, Workflow
from weft_gateway.workflows.requests import Request, SqlRequest
from weft_gateway.workflows.signature import signature


def written(workflow: Workflow) -> frozenset[str]:
    """Return the connections that a workflow writes to. A read there depends on its time."""
    bodies = (body for one in workflow.operators for body in _bodies(one.body))
    return frozenset(body.connection for body in bodies if isinstance(body, Sql) and body.write)


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


def _bodies(body: Body) -> Iterator[Body]:
    yield body
    if isinstance(body, Loop):
        for one in body.body:
            yield from _bodies(one.body)
    elif isinstance(body, Branch):
        for case in body.cases:
            yield case.body
