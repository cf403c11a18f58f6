"""The operators that a workflow from HTTP may have. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Final

import msgspec

from weft_gateway.marks import nearest
from weft_gateway.workflows.graph import Body, Http, Llm, Operator, Python, Sql, Workflow, bodies
from weft_gateway.workflows.templates import Constant

_URL: Final = re.compile(r"(https?)://([^/?#\s{}]+)[/?#]", re.IGNORECASE)
_PORTS: Final = {"http": 80, "https": 443}
# They decide which server reads a request, and where it ends.
_HEADERS: Final = frozenset(
    {"host", "connection", "content-length", "transfer-encoding", "upgrade", "te", "trailer",
     "expect"}
)  # fmt: skip

# A plan and the figures of a run contain each operator, and listeners get them several times per
# second.
MOST_OPERATORS: Final = 500


class Rules(msgspec.Struct, frozen=True):
    """connections: SQLite files by name. writable: names of those that may be changed. hosts:
    `host:port` that HTTP requests may reach.
    """

    connections: dict[str, str] = {}
    writable: frozenset[str] = frozenset()
    hosts: frozenset[str] = frozenset()


def refusals(workflow: Workflow, rules: Rules, file: str) -> list[str]:
    """Return a message for each operator that may not run: file:line: operator: reason."""
    return [
        f"{file}:{one.line}: {one.name}: {reason}"
        for one, body in bodies(workflow.operators)
        for reason in _reasons(body, rules)
    ]


def models(workflow: Workflow) -> Iterator[tuple[str, Operator | None]]:
    """Yield each model that the workflow names, with the first operator that names it, None for the
    workflow's own.
    """
    seen = set()
    if workflow.model:
        seen.add(workflow.model)
        yield workflow.model, None
    for one, body in bodies(workflow.operators):
        if isinstance(body, Llm) and body.model and body.model not in seen:
            seen.add(body.model)
            yield body.model, one


def _reasons(body: Body, rules: Rules) -> Iterator[str]:
    match body:
        case Python():
            yield "python operators do not run over HTTP; use weft run"
        case Sql(name, write=write):
            if name not in rules.connections:
                yield f"no connection is named {name!r}{_known(name, rules.connections)}"
            elif write and name not in rules.writable:
                yield f"the connection {name!r} is read-only"
        case Http():
            wrong = sorted(name for name in body.headers if name.lower() in _HEADERS)
            if wrong:
                yield f"the header {wrong[0]!r} cannot be set"
            found = _URL.match(_beginning(body))
            if not rules.hosts:
                yield "no host is allowed for HTTP requests"
            elif found and _place(found) not in rules.hosts:
                yield f"{_place(found)} is not allowed{_known(_place(found), rules.hosts)}"


def _beginning(body: Http) -> str:
    """Return the constant beginning of a URL."""
    part = body.url.parts[0] if body.url.parts else None
    text = part.text if isinstance(part, Constant) else ""
    return text if len(body.url.parts) > 1 else f"{text}/"


def _place(found: re.Match[str]) -> str:
    place = found[2].lower().rpartition("@")[2]
    host, colon, port = place.rpartition(":")
    if not colon or not port.isdigit():
        host, port = place, str(_PORTS[found[1].lower()])
    return f"{host}:{port}"


def _known(name: str, known: Collection[str]) -> str:
    return nearest(name, sorted(known)) if known else "; none is configured"
