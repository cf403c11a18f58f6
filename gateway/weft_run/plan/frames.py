"""The state of rows in progress: frames with their operators, items and rounds. See `wavefront`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from weft_run.language.graph import (
    Body,
    Branch,
    Http,
    Llm,
    Loop,
    Operator,
    Python,
    Simple,
    Sql,
    default_retries,
    digest,
    templates,
)
from weft_run.language.requests import ChatRequest, Request, rendered
from weft_run.plan.commands import Failure, Work

# Positions in the order of execution compare like texts: operator, item, round, operator, ...
Order = tuple[int, ...]


class Steps:
    """Operators of a row or of a loop's round, with their dependencies.

    waits: the number of operators that each one reads. readers: the operators that read each one.
    source: the operator whose items an operator takes one by one, None if it reads whole values.
    inner: the steps of loops.
    """

    def __init__(self, operators: tuple[Operator, ...], prefix: str = "") -> None:
        self.operators = operators
        self.paths = [prefix + one.name for one in operators]
        at = {one.name: index for index, one in enumerate(operators)}
        self.waits = [sum(name in at for name in one.inputs) for one in operators]
        self.readers: list[list[int]] = [[] for _ in operators]
        self.source: list[int | None] = [None] * len(operators)
        self.inner: dict[int, Steps] = {}
        for index, one in enumerate(operators):
            for name in one.inputs:
                if name in at:
                    self.readers[at[name]].append(index)
            above = at.get(one.for_each or "")
            if above is not None and operators[above].for_each is not None:
                whole = one.for_each in _read_whole(one)
                self.source[index] = None if whole or has_effect(one.body, one) else above
            if isinstance(one.body, Loop):
                self.inner[index] = Steps(one.body.body, f"{self.paths[index]}.")


def _read_whole(one: Operator) -> set[str]:
    """Return the names that an operator reads beside the items of its `for_each`."""
    names = {name for template in templates(one.body) for name in template.names}
    if isinstance(one.body, Loop):
        names.update(name for inner in one.body.body for name in inner.inputs)
    return names | set(one.when.names if one.when is not None else ())


def has_effect(body: Body, one: Operator) -> bool:
    """Whether an execution that the naive order would not make could change something. An operator
    that takes items one by one may start before the operator above it fails.
    """
    match body:
        case Loop():
            return any(has_effect(inner.body, inner) for inner in body.body)
        case Branch():
            return any(has_effect(case.body, one) for case in body.cases)
        case Sql():
            return body.write
    return isinstance(body, Python | Http) and not one.idempotent


class FirstError(NamedTuple):
    """An error that ends an operator or a round. place: of the execution that failed."""

    order: Order
    place: str
    failure: Failure


@dataclass(slots=True, eq=False)
class Map:
    """An operator with `for_each` in progress. items: its input. results, done: the value of each
    item, and whether it has one. left: items without a value. followers: operators that take the
    results one by one.
    """

    items: Sequence[Any]
    results: list[Any]
    done: list[bool]
    left: int
    followers: list[int] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Unit:
    """One execution of a body that is not a loop: an operator, or one item of it, in one round.

    place: unique in the row, for example `facts[3]` for an item, or `try#2.draft` for the second
    round of a loop. operator: the place without items and rounds.
    """

    frame: Frame
    index: int
    item: int | None
    body: Simple
    order: Order
    place: str
    operator: str
    dropped: bool = False

    @property
    def declared(self) -> Operator:
        """The operator in the workflow."""
        return self.frame.steps.operators[self.index]

    @property
    def retries(self) -> int:
        """Repetitions after an error that may pass."""
        return self.declared.retries

    def rendered(self, model: str) -> Request:
        """Return the request. model: the workflow's. Raises TemplateError."""
        return rendered(self.body, self.scope(), model)

    @property
    def row(self) -> int:
        """The number of its row."""
        return self.frame.row

    def scope(self) -> Mapping[str, Any]:
        """Return the values that the body may read."""
        return self.frame.scope(self.index, self.item)


@dataclass(slots=True, eq=False, kw_only=True)
class Ask(Unit):
    """A call that a tool needs while it runs. tool: the number of its work. number: of the call, as
    the tool knows it.
    """

    request: ChatRequest
    tool: int = 0
    number: int = 0

    @classmethod
    def of(cls, tool: Unit, part: str, request: ChatRequest, equal: Counter[str]) -> Ask:
        """Return a call of a tool. part: of the tool, for the counts. equal: the tool's earlier
        calls by request; this one is added.
        """
        key = digest(request)
        equal[key] += 1
        return cls(
            frame=tool.frame,
            index=tool.index,
            item=tool.item,
            body=Llm((), request.model, request.parameters),
            order=(*tool.order, equal.total()),
            # The same after a crash, in any order of the calls.
            place=f"{tool.place}/{key}/{equal[key]}",
            operator=f"{tool.operator}.{part}",
            request=request,
        )

    @property
    def retries(self) -> int:
        """Repetitions of the call after an error that may pass."""
        return default_retries(self.body, False)

    def rendered(self, model: str) -> Request:
        """Return the call."""
        return self.request


@dataclass(slots=True, eq=False)
class Flight:
    """A request in flight. waiters: the units that need its answer; the first one caused it. asks:
    open calls of a tool; equal: the number of all its calls, by request.
    """

    work: Work
    waiters: list[Unit]
    asks: set[Ask] = field(default_factory=set)
    equal: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True, eq=False)
class Frame:
    """A row, or one round of a loop, in progress. owner: the loop's frame, operator and item.

    path: prefix of the places inside. units, loops: what runs in this frame; running: their number
    by group. left: operators that have not ended. errors: the first one of each group. failed:
    operators of a row that have no value. unmet: loops that ended without their condition.
    """

    row: int
    steps: Steps
    values: dict[str, Any]
    order: Order = ()
    path: str = ""
    owner: tuple[Frame, int, int | None] | None = None
    round: int = 0
    waiting: list[int] = field(default_factory=list)
    left: int = 0
    maps: dict[int, Map] = field(default_factory=dict)
    units: set[Unit] = field(default_factory=set)
    loops: set[Frame] = field(default_factory=set)
    running: Counter[int] = field(default_factory=Counter)
    errors: dict[int, FirstError] = field(default_factory=dict)
    failed: set[int] = field(default_factory=set)
    unmet: list[FirstError] = field(default_factory=list)
    ended: bool = False

    def scope(self, index: int, item: int | None) -> dict[str, Any]:
        """Return the values that an operator may read. item: of `for_each`."""
        if item is None:
            return self.values
        return {**self.values, "item": self.maps[index].items[item], "index": item}

    def group(self, index: int) -> int:
        """Return the group of an operator. An error ends a group: an operator of a row, or all
        operators of a round (-1).
        """
        return index if self.owner is None else -1

    def live(self, order: Order) -> bool:
        """Whether an execution at this position still counts."""
        frame: Frame | None = self
        while frame is not None:
            index = order[len(frame.order)]
            error = frame.errors.get(frame.group(index))
            if frame.ended or index in frame.failed or (error and order > error.order):
                return False
            frame = frame.owner[0] if frame.owner else None
        return True

    def inside(self, group: int) -> tuple[list[Unit], list[Frame]]:
        """Return the units and loops of a group, without those inside the loops."""
        units = [one for one in self.units if self.group(one.index) == group]
        owned = [(one, one.owner[1]) for one in self.loops if one.owner is not None]
        return units, [one for one, index in owned if self.group(index) == group]
