"""The graph of a workflow: immutable operators, in topological order (Helium 3, Halo 3).

A scope maps names to values. The scope of a row has its columns (the workflow's inputs) and the
values of the operators that ran before. These names are reserved: `item` and `index` in an operator
with `for_each`, `previous` and `round` in the body of a loop. Values are JSON.

The value of an operator depends on its body:

- `Llm`: the text of the answer. `Format`: a text. `Python`: the function's result. `Sql`: a list of
  rows, each a mapping. `Http`: the JSON of the answer, or its text.
- `Loop`: a mapping from the names of its body to their values in the last round.
- `Branch`: the value of its first case whose condition holds, None without one.
- `LangGraph`: the state that the graph returns.
- With `for_each`, a list with one value per item; None if the list is None.
- None if `when` does not hold. With `for_each`, `when` is evaluated per item.
- With `on_error="value"`, `{"value": ..., "error": ...}`; one of the two is None. In an operator
  with `for_each`, each item has such a mapping.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from enum import StrEnum
from graphlib import TopologicalSorter
from typing import Any, Final, Literal

from weft_run.language.templates import Template, Tree, leaves

# Names that operators and inputs cannot have.
RESERVED: Final = frozenset({"item", "index", "previous", "round"})
Role = Literal["system", "user", "assistant"]
OnError = Literal["fail", "value"]
Unmet = Literal["keep", "fail"]


class InputType(StrEnum):
    """The type of a column. LIST and DICT are JSON in files that have no such types."""

    STR = "str"
    INT = "int"
    FLOAT = "float"
    BOOL = "bool"
    LIST = "list"
    DICT = "dict"
    ANY = "any"


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a chat."""

    role: Role
    content: Template


@dataclass(frozen=True, slots=True)
class Llm:
    """One chat completion. model: empty for the workflow's. parameters: the other fields of the
    request (`temperature`, `max_tokens`, `seed`, ...), JSON.
    """

    messages: tuple[Message, ...]
    model: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)

    @property
    def repeatable(self) -> bool:
        """Whether two calls with this prompt have the same answer: temperature 0, or a seed."""
        return self.parameters.get("temperature") == 0 or self.parameters.get("seed") is not None


@dataclass(frozen=True, slots=True)
class Format:
    """A text from a template."""

    template: Template


@dataclass(frozen=True, slots=True)
class Python:
    """A call of a Python function. function: `module:name`. arguments: positional;
    named: by keyword.
    """

    function: str
    arguments: tuple[Tree, ...] = ()
    named: Mapping[str, Tree] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sql:
    """A query on a configured connection. parameters: values that the database binds by name.
    write: whether it changes the database; neither a write nor a read of a database that the
    workflow writes to is shared.
    """

    connection: str
    query: Template
    parameters: Mapping[str, Tree] = field(default_factory=dict)
    write: bool = False


@dataclass(frozen=True, slots=True)
class Http:
    """A request. body: JSON; None sends no body. A status of 400 or more is an error."""

    method: str
    url: Template
    headers: Mapping[str, Template] = field(default_factory=dict)
    body: Tree = None


@dataclass(frozen=True, slots=True)
class Loop:
    """Rounds of a body. The body reads the previous round as `previous` (None in round 1), and the
    round's number, from 1, as `round`. The loop ends after the round in which `until` holds, or
    after `max` rounds. body: in topological order; `until` reads the names of the body. unmet: what
    a loop does if `until` never holds: "keep" keeps the values of the last round, "fail" fails.
    """

    body: tuple[Operator, ...]
    until: Template
    max: int
    unmet: Unmet = "keep"


@dataclass(frozen=True, slots=True)
class Case:
    """A case of a branch. when: None always holds."""

    when: Template | None
    body: Simple


@dataclass(frozen=True, slots=True)
class Branch:
    """The first case whose condition holds; only this one runs."""

    cases: tuple[Case, ...]


@dataclass(frozen=True, slots=True)
class LangGraph:
    """A run of a LangGraph graph. graph: `module:name`. state: its input, by key. The chat calls of
    its nodes are calls of the run, so it may run again after a crash; it is never merged.
    """

    graph: str
    state: Mapping[str, Tree]


Simple = Llm | Format | Python | Sql | Http | LangGraph
Body = Simple | Loop | Branch


@dataclass(frozen=True, slots=True)
class Operator:
    """A node of the graph.

    inputs: the names outside the operator that it reads, sorted: operators, columns, and names of
    an enclosing loop. for_each: the name of a list; the body runs once per item. when: the body
    runs if this expression holds. on_error: "fail" fails the row, "value" makes the error a value.
    idempotent: a repeated execution has the same result and no further effect, so that a tool may
    be retried, merged and coalesced. retries: repetitions after an error that may pass. file, line:
    of the definition, "" and 0 without one; not part of the identity.
    """

    name: str
    body: Body
    inputs: tuple[str, ...] = ()
    for_each: str | None = None
    when: Template | None = None
    on_error: OnError = "fail"
    idempotent: bool = False
    retries: int = 0
    line: int = field(default=0, compare=False)
    file: str = field(default="", compare=False)

    @property
    def place(self) -> str:
        """The operator in a message: file:line: operator 'name'."""
        where = f"{self.file}:{self.line}: " if self.file else ""
        return f"{where}operator {self.name!r}"

    @property
    def deterministic(self) -> bool:
        """Whether equal inputs give equal values without an effect, so that two such operators may
        become one.
        """
        return deterministic(self.body, self.idempotent)


@dataclass(frozen=True, slots=True)
class Workflow:
    """A workflow. model: the default of its calls. inputs: types of the columns. operators: in
    topological order. outputs: the operator of each column of the result. model_line: of the model
    in the file, 0 without one; not part of the identity.
    """

    name: str
    model: str
    inputs: Mapping[str, InputType]
    operators: tuple[Operator, ...]
    outputs: Mapping[str, str]
    model_line: int = field(default=0, compare=False)

    @property
    def by_name(self) -> dict[str, Operator]:
        """The operators by name, without those of loop bodies."""
        return {one.name: one for one in self.operators}

    def signature(self) -> str:
        """Return a digest of the whole workflow, in hex. A run can be resumed only with the
        workflow that began it. The order of definitions and of parameters does not matter.
        """
        return digest(self)


def operator(
    name: str,
    body: Body,
    *,
    for_each: str | None = None,
    when: Template | None = None,
    on_error: OnError = "fail",
    idempotent: bool = False,
    retries: int | None = None,
    line: int = 0,
    file: str = "",
) -> Operator:
    """Return an operator, with the inputs that its parts read. retries: None for the default."""
    read = _body_names(body)
    if when is not None:
        read |= set(when.names)
    if for_each is not None:
        read = read - {"item", "index"} | {for_each}
    inputs = tuple(sorted(read))
    times = default_retries(body, idempotent) if retries is None else retries
    return Operator(name, body, inputs, for_each, when, on_error, idempotent, times, line, file)


def renamed(node: Any, names: Mapping[str, str]) -> Any:
    """Return a part of a graph with each name in it replaced by `names[name]`."""
    if isinstance(node, Template):
        return node.renamed(names)
    if isinstance(node, Mapping):
        return {key: renamed(one, names) for key, one in node.items()}
    if isinstance(node, list | tuple):
        return type(node)(renamed(one, names) for one in node)
    if not is_dataclass(node) or isinstance(node, type):
        return node
    parts = {one.name: renamed(getattr(node, one.name), names) for one in fields(node)}
    if isinstance(node, Operator):
        parts["name"] = names.get(node.name, node.name)
        parts["for_each"] = names.get(node.for_each or "", node.for_each)
        del parts["inputs"]
        return operator(**parts)
    return replace(node, **parts)


def default_retries(body: Body, idempotent: bool) -> int:
    """Return 2 for calls of models, reads, and tools that may be repeated; otherwise 0."""
    match body:
        case Llm():
            return 2
        case Sql():
            return 2 if idempotent or not body.write else 0
        case Branch():
            return min((default_retries(case.body, idempotent) for case in body.cases), default=0)
        case Python() | Http():
            return 2 if idempotent else 0
    return 0


def deterministic(body: Body, idempotent: bool) -> bool:
    """Whether equal inputs give equal values without an effect. idempotent: of the operator."""
    match body:
        case Llm():
            return body.repeatable
        case Format():
            return True
        case Sql():
            return not body.write
        case Loop():
            return all(one.deterministic for one in body.body)
        case Branch():
            return all(deterministic(case.body, idempotent) for case in body.cases)
    return idempotent


def templates(body: Body) -> Iterator[Template]:
    """Yield all templates of a body, without those of a loop's operators."""
    match body:
        case Llm():
            yield from (message.content for message in body.messages)
        case Format():
            yield body.template
        case Python():
            yield from leaves(body.arguments, Template)
            yield from leaves(body.named, Template)
        case LangGraph():
            yield from leaves(body.state, Template)
        case Sql():
            yield body.query
            yield from leaves(body.parameters, Template)
        case Http():
            yield body.url
            yield from body.headers.values()
            yield from leaves(body.body, Template)
        case Loop():
            yield body.until
        case Branch():
            for case in body.cases:
                if case.when is not None:
                    yield case.when
                yield from templates(case.body)


def bodies(operators: Iterable[Operator]) -> Iterator[tuple[Operator, Body]]:
    """Yield each body, also inside of loops and branches, with the innermost operator around it."""
    for one in operators:
        yield one, one.body
        if isinstance(one.body, Loop):
            yield from bodies(one.body.body)
        elif isinstance(one.body, Branch):
            yield from ((one, case.body) for case in one.body.cases)


def written(workflow: Workflow) -> frozenset[str]:
    """Return the connections that a workflow writes to. A read there depends on its time."""
    every = (body for _, body in bodies(workflow.operators))
    return frozenset(body.connection for body in every if isinstance(body, Sql) and body.write)


def in_order(operators: Iterable[Operator]) -> tuple[Operator, ...]:
    """Sort topologically. Names without an operator are columns. Raises graphlib.CycleError, whose
    second argument is the cycle.
    """
    named = {one.name: one for one in operators}
    sorter = TopologicalSorter(
        {name: [read for read in one.inputs if read in named] for name, one in named.items()}
    )
    return tuple(named[name] for name in sorter.static_order())


# Fields of nodes and requests that are JSON values and no names.
_VALUES: Final = frozenset({"body", "json", "state"})


def digest(node: Any) -> str:
    """Return a digest of a node or value, in hex, without lines and user-written sources."""
    text = json.dumps(plain(node), separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def plain(node: Any) -> Any:
    """Return a node as JSON: the same for equal nodes.

    The order of keys inside values is kept: models and tools see it, for example that of a JSON
    schema. So are 1 and 1.0 different values.
    """
    if isinstance(node, Template):
        return {"": "Template", "parts": node.canonical()}
    if is_dataclass(node) and not isinstance(node, type):
        found = {one.name: plain(_sorted(node, one.name)) for one in fields(node) if one.compare}
        if isinstance(node, Workflow):
            found["operators"] = sorted(found["operators"], key=lambda one: one["name"])
        if isinstance(node, Loop):
            found["body"] = sorted(found["body"], key=lambda one: one["name"])
        return {"": type(node).__name__, **found}
    if isinstance(node, Mapping):
        return {str(key): plain(one) for key, one in node.items()}
    if isinstance(node, list | tuple):
        return [plain(one) for one in node]
    return node


def _sorted(node: Any, name: str) -> Any:
    """Return a part of a node. Names in it, such as parameters, have no order."""
    part = getattr(node, name)
    if isinstance(part, Mapping) and name not in _VALUES:
        return dict(sorted(part.items()))
    return part


def _body_names(body: Body) -> set[str]:
    read = {name for template in templates(body) for name in template.names}
    if isinstance(body, Loop):
        for one in body.body:
            read.update(one.inputs)
        read -= {one.name for one in body.body} | {"previous", "round"}
    return read
