"""The operators that a workflow from HTTP may have. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from weft_run.io.reach import no_connection, no_host
from weft_run.language.graph import Body, Http, Python, Sql, Workflow, bodies

# They decide which server reads a request, and where it ends.
_HEADERS: Final = frozenset(
    {"host", "connection", "content-length", "transfer-encoding", "upgrade", "te", "trailer",
     "expect"}
)  # fmt: skip

MOST_OPERATORS: Final = 500


def refusals(
    workflow: Workflow, connections: Collection[str], hosts: Collection[str], file: str
) -> list[str]:
    """Return a message for each operator that may not run: file:line: operator: reason.
    connections: names of databases. hosts: `host:port` that HTTP requests may reach.
    """
    return [
        f"{file}:{one.line}: {one.name}: {reason}"
        for one, body in bodies(workflow.operators)
        for reason in _reasons(body, connections, hosts)
    ]


def _reasons(body: Body, connections: Collection[str], hosts: Collection[str]) -> Iterator[str]:
    match body:
        case Python():
            yield "python operators do not run over HTTP; use weft run"
        case Sql(name, write=write):
            if what := no_connection(name, connections):
                yield what
            elif write:
                yield f"the connection {name!r} is read-only"
        case Http():
            wrong = sorted(name for name in body.headers if name.lower() in _HEADERS)
            if wrong:
                yield f"the header {wrong[0]!r} cannot be set"
            if what := no_host(body, hosts):
                yield what
