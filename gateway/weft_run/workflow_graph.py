"""A workflow made in Python: names, checks, and its run. See `weft_run.workflow`."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from weft_run.language.check import WorkflowError, problems
from weft_run.language.compile import ordered
from weft_run.language.graph import Workflow, renamed
from weft_run.workflow_nodes import Input, Node

_GATEWAY: Final = "http://127.0.0.1:8080"


@dataclass(frozen=True, slots=True)
class Result:
    """The end of a run. reason: `done`, or `tokens` or `errors` for a spent budget. rows, failed:
    that have ended. tokens: of all calls. unmet: rows whose loops have ended without their
    condition.
    """

    reason: str
    rows: int
    failed: int
    tokens: int
    unmet: int = 0


@dataclass(frozen=True, slots=True)
class Graph:
    """A workflow. It has no state: it can run any number of times."""

    workflow: Workflow

    def signature(self) -> str:
        """Return a digest of the workflow, in hex: the same for the same workflow in YAML."""
        return self.workflow.signature()

    def explain(self, rows: str | Path, width: int = 120) -> str:
        """Return the plan over the rows of a file as text, as `weft explain` prints it. Raises
        ValueError for invalid input.
        """
        from weft_run.io.explaining import explained
        from weft_run.plan.explain_text import text

        return text(explained(self.workflow, Path(rows)), width)

    def run(
        self,
        rows: str | Path,
        *,
        out: str | Path,
        gateway: str = _GATEWAY,
        resume: bool = False,
        in_flight: int | None = None,
        budget_tokens: int | None = None,
        max_errors: int | None = None,
        connections: Mapping[str, str | Path] | None = None,
        hosts: tuple[str, ...] = (),
        prompt_cache: str | Path | None = None,
    ) -> Result:
        """Run over the rows of a file and write the results, as `weft run` does with options of the
        same names. OPENAI_API_KEY is the key for the gateway. Raises ValueError for invalid input
        before the first call. Call it outside of an event loop.
        """
        from weft_run.io import local
        from weft_run.io.job import Job, Opened

        files = {name: Path(one) for name, one in (connections or {}).items()}
        cache = Path(prompt_cache) if prompt_cache is not None else None
        job = Job(self.workflow, Path(rows), Path(out), files, hosts, cache)
        key = os.environ.get("OPENAI_API_KEY", "")
        options = local.Options(gateway, key, in_flight, budget_tokens, max_errors)
        ended = asyncio.run(local.run(job, Opened(job, resume=resume), options))
        reason, count, failed, unmet = ended.outcome
        return Result(reason, count, failed, ended.tokens, unmet)


def build(
    outputs: Mapping[str, Node] | None = None,
    /,
    *,
    name: str = "workflow",
    model: str = "",
    effects: Sequence[Node] = (),
    **columns: Node,
) -> Graph:
    """Return the graph of all nodes that the outputs need.

    outputs, columns: the node of each column of the result. effects: nodes that run although no
    output needs them, for example writes to a database. Nodes without a name get one by kind and
    order, for example `llm_2`. Raises WorkflowError with one line per error.
    """
    named = {**(outputs or {}), **columns}
    for column, one in named.items():
        if not isinstance(one, Node):
            raise WorkflowError(f"output {column!r} must be a node, not {type(one).__name__}")
    nodes, inputs = _reachable([*named.values(), *effects])
    names = _names(nodes)

    marks = {one.mark: names[one] for one in nodes}
    inner = {part for one in nodes for part in one.inner}
    operators = {one: renamed(one.operator, marks) for one in nodes}
    types = {one.name: one.type for one in inputs}
    columns_of = {column: names[one] for column, one in named.items()}
    top = ordered(operators[one] for one in nodes if one not in inner)
    workflow = Workflow(name, model, types, top, columns_of)
    places = {one.name: f"{one.place}: " for one in operators.values()}
    found = []
    for problem in problems(workflow):
        inside = problem.operators
        where = places[inside[-1]] if inside else ""
        found.append(f"{where}{problem.message}")
    if found:
        raise WorkflowError("\n".join(found))
    return Graph(workflow)


def _reachable(wanted: Iterable[Node]) -> tuple[list[Node], list[Input]]:
    """Return the nodes in the order in which they were made, and the inputs by name."""
    nodes: set[Node] = set()
    inputs: dict[str, Input] = {}
    todo: list[Input | Node] = list(wanted)
    while todo:
        one = todo.pop()
        if isinstance(one, Input):
            if inputs.setdefault(one.name, one) != one:
                raise WorkflowError(f"input {one.name!r} has two types")
        elif one not in nodes:
            nodes.add(one)
            todo += [*one.reads, *one.inner]
    return sorted(nodes, key=lambda one: one.number), [inputs[name] for name in sorted(inputs)]


def _names(nodes: list[Node]) -> dict[Node, str]:
    taken = {one.name for one in nodes}
    found: dict[Node, str] = {}
    numbers = Counter[str]()
    for one in nodes:
        kind, name = next(iter(one.spec)), one.name
        while name is None or (one.name is None and name in taken):
            numbers[kind] += 1
            name = f"{kind}_{numbers[kind]}"
        found[one] = name
    return found
