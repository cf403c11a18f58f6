"""The operators that a workflow from HTTP may have. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec
from weft_run.io.reach import no_connection, no_host
from weft_run.language.graph import Body, Http, Python, Sql, Workflow, bodies

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


def _reasons(body: Body, rules: Rules) -> Iterator[str]:
    match body:
        case Python():
            yield "python operators do not run over HTTP; use weft run"
        case Sql(name, write=write):
            if what := no_connection(name, rules.connections):
                yield what
            elif write and name not in rules.writable:
                yield f"the connection {name!r} is read-only"
        case Http():
            wrong = sorted(name for name in body.headers if name.lower() in _HEADERS)
            if wrong:
                yield f"the header {wrong[0]!r} cannot be set"
            if what := no_host(body, rules.hosts):
                yield what
