"""Rewrites of a graph that keep its outputs (Helium 4, initial plan pruning).

First, `merge` joins operators that have the same value, then `prune` drops operators that no output
needs. The result executes a subset of the original's requests, and each answer is used unchanged.
A row has no errors of operators that were dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from weft_run.language.graph import (
    Body,
    Format,
    Http,
    Llm,
    Operator,
    Python,
    Sql,
    Workflow,
    bodies,
    digest,
    renamed,
    written,
)
from weft_run.language.templates import Placeholder

_NAME: Final = re.compile(r"\{\{ (\w+) \}\}")


class Kind(StrEnum):
    """The kind of a rewrite."""

    MERGE = "merge"
    PRUNE = "prune"


@dataclass(frozen=True, slots=True)
class Rewrite:
    """One rewrite. operator: the operator that changed or went. reason: for `weft explain`.
    into: of a merge, the operator that has the value now.
    """

    kind: Kind
    operator: str
    reason: str
    into: str = ""


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A workflow after rewrites, and what they did, in order."""

    workflow: Workflow
    rewrites: tuple[Rewrite, ...]


def rewrite(workflow: Workflow) -> Rewritten:
    """Apply all rewrites."""
    merged = merge(workflow)
    pruned = prune(merged.workflow)
    return Rewritten(pruned.workflow, (*merged.rewrites, *pruned.rewrites))


def merge(workflow: Workflow) -> Rewritten:
    """Join deterministic operators with equal bodies and inputs: common subgraphs. In topological
    order, so that operators above merged ones become equal, too. Reads of a database that the
    workflow writes to stay apart.
    """
    writes = written(workflow)
    names: dict[str, str] = {}
    first: dict[str, str] = {}
    kept: list[Operator] = []
    done: list[Rewrite] = []
    for given in workflow.operators:
        one: Operator = renamed(given, names)
        same = _identity(one, kept)
        reason = "it only repeats the text"
        if same is None and one.deterministic and not _uses(one, writes):
            key = digest(replace(one, name=""))
            same = first.setdefault(key, one.name)
            reason = "same body and inputs"
        if same is None or same == one.name:
            kept.append(one)
            continue
        names[one.name] = same
        done.append(Rewrite(Kind.MERGE, one.name, reason, into=same))
    outputs = {column: names.get(name, name) for column, name in workflow.outputs.items()}
    return Rewritten(replace(workflow, operators=tuple(kept), outputs=outputs), tuple(done))


def prune(workflow: Workflow) -> Rewritten:
    """Drop the operators that neither an output nor an operator with an effect needs."""
    operators = workflow.by_name
    needed: set[str] = set()
    todo = [*workflow.outputs.values(), *(one.name for one in operators.values() if effect(one))]
    while todo:
        name = todo.pop()
        if name in operators and name not in needed:
            needed.add(name)
            todo += operators[name].inputs
    done = [
        Rewrite(Kind.PRUNE, name, "no output needs it") for name in operators if name not in needed
    ]
    kept = tuple(one for one in workflow.operators if one.name in needed)
    return Rewritten(replace(workflow, operators=kept), tuple(done))


def effect(one: Operator) -> bool:
    """Whether an execution may change something outside: writes of databases, requests other than
    GET and HEAD, and Python functions that are not marked as idempotent.
    """
    return any(_effect(body, owner) for owner, body in bodies((one,)))


def _effect(body: Body, owner: Operator) -> bool:
    match body:
        case Sql():
            return body.write
        case Http():
            return body.method not in ("GET", "HEAD")
        case Python():
            return not owner.idempotent
    return False


def _uses(one: Operator, connections: frozenset[str]) -> bool:
    """Whether an operator uses one of these connections."""
    return any(
        isinstance(body, Sql) and body.connection in connections for _, body in bodies((one,))
    )


def _identity(one: Operator, before: Iterable[Operator]) -> str | None:
    """The operator whose text a `Format` repeats unchanged, or None."""
    if not isinstance(one.body, Format) or one.for_each or one.when or one.on_error != "fail":
        return None
    parts = one.body.template.parts
    if len(parts) != 1 or not isinstance(parts[0], Placeholder):
        return None
    if not _NAME.fullmatch(parts[0].source) or len(one.inputs) != 1:
        return None
    for other in before:
        if other.name == one.inputs[0]:
            plain = other.for_each is None and other.when is None and other.on_error == "fail"
            return other.name if plain and isinstance(other.body, Llm | Format) else None
    return None
