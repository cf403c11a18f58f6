"""The plan of `weft run`: rows whose prompts begin alike run on one replica, one after another.

The columns with which most prompts begin, in their order, form a path: rows that agree in the first
k columns share a prefix. A row follows the row with the longest common path to its replica, unless
that replica has much more open work than another one; other rows go to the replica whose open work
ends first, by its window and its speed. A fast replica ends rows sooner, so it also gets more of
them during the run. Rows of a group are sent next to each other, in the order of the groups' first
rows. Operators with different texts before the columns have different prefixes. A block of a
group's rows is sent prefix by prefix, then the next block: the cache needs room for one prefix at a
time, and the first rows end soon, so that tools and other models have work. Decisions need no
knowledge of the whole input, so memory does not grow with it.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

import orjson

from weft_run.language.graph import Branch, Llm, Loop, Operator, Workflow
from weft_run.language.templates import Constant
from weft_run.plan.commands import ANY, Turn

# Groups that are remembered after their last row; the KV cache of an engine has fewer prefixes.
_GROUPS: Final = 65_536
# Columns by which rows are grouped.
_DEPTH: Final = 4
# Rows of a block. If the cache has no room for all prefixes of a group, a prefix is computed once
# for each block. In a larger block, the first rows end later.
_BLOCK: Final = 8
# Names of an operator with `for_each` that stand for its column.
_ITEM: Final = ("item", "index")


def leading_columns(workflow: Workflow) -> tuple[str, ...]:
    """Return the columns with which the prompts of most LLM operators begin, in their order. Empty
    if most begin with answers, or have no column.
    """
    found = Counter(_columns(one, body, workflow) for _, one, body in calls_of(workflow.operators))
    return max(found, key=lambda path: found[path]) if found else ()


def calls_of(
    operators: tuple[Operator, ...], prefix: str = ""
) -> Iterator[tuple[str, Operator, Llm]]:
    """Yield the name in units, the operator and the body of each LLM call."""
    for one in operators:
        name = prefix + one.name
        if isinstance(one.body, Llm):
            yield name, one, one.body
        elif isinstance(one.body, Branch):
            for number, case in enumerate(one.body.cases):
                if isinstance(case.body, Llm):
                    yield f"{name}[{number}]" if number else name, one, case.body
        elif isinstance(one.body, Loop):
            yield from calls_of(one.body.body, f"{name}.")


def _columns(one: Operator, body: Llm, workflow: Workflow) -> tuple[str, ...]:
    """Return the columns that a prompt reads before anything else that differs between rows."""
    found: dict[str, None] = {}
    for message in body.messages:
        for names in message.content.names_of_parts():
            read = {one.for_each or "" if name in _ITEM else name for name in names}
            if not read <= workflow.inputs.keys():
                return tuple(found)
            found.update(dict.fromkeys(sorted(read)))
    return tuple(found)


@dataclass(slots=True)
class _Group:
    """Rows with the same beginning. homes: a window for each set of models, by its number. turn: of
    its calls. open: rows in progress. begun: rows since the group was without one.
    """

    homes: list[str]
    turn: int
    open: int = 0
    begun: int = 0


@dataclass(frozen=True, slots=True)
class _Row:
    """turn: of the group, and the block of rows in it."""

    homes: tuple[str, ...]
    turn: tuple[int, int]
    group: _Group


class Grouped:
    """The plan of a run. See `commands.Plan`."""

    def __init__(
        self,
        workflow: Workflow,
        windows: Mapping[str, int],
        serves: Mapping[str, frozenset[str]] | None = None,
        speeds: Mapping[str, float] | None = None,
    ) -> None:
        """windows: calls that may be in flight, by window. serves: the models of a window; a window
        without an entry serves all. speeds: as in `costs.relative_speeds`; 1 for windows
        without an entry.
        """
        self._windows = dict(windows)
        self._speeds = {name: (speeds or {}).get(name, 1.0) for name in windows}
        # Calls that end in the same time.
        self._rates = {name: count * self._speeds[name] for name, count in windows.items()}
        self._path = leading_columns(workflow)[:_DEPTH]
        self._places = _places(workflow, self._path)
        models = {
            name: body.model or workflow.model for name, _, body in calls_of(workflow.operators)
        }
        able = {
            name: tuple(
                window for window in windows if model in (serves or {}).get(window, {model})
            )
            for name, model in models.items()
        }
        self._pools = tuple(dict.fromkeys(pool for pool in able.values() if pool))
        self._pool = {name: self._pools.index(pool) for name, pool in able.items() if pool}
        self._open = dict.fromkeys(windows, 0)
        self._groups: OrderedDict[bytes, _Group] = OrderedDict()
        self._rows: dict[int, _Row] = {}
        self._turns = 0

    def begin(self, row: int, columns: Mapping[str, Any]) -> None:
        """A row begins: choose its replicas and its turn."""
        keys = _keys([columns.get(name) for name in self._path])
        level = _level(keys)
        known = next((self._groups[key] for key in reversed(keys) if key in self._groups), None)
        homes = [self._home(number, known) for number in range(len(self._pools))]
        for key in keys or [level]:
            group = self._groups.get(key)
            if group is None or not group.open:
                self._turns += 1
                self._groups[key] = _Group(homes, self._turns)
            else:
                group.homes = homes
            self._groups.move_to_end(key)
        group = self._groups[level]
        for home in homes:
            self._open[home] += 1
        turn = (group.turn, group.begun // _BLOCK)
        self._rows[row] = _Row(tuple(homes), turn, group)
        group.open += 1
        group.begun += 1
        while len(self._groups) > _GROUPS:
            self._groups.popitem(last=False)

    def ended(self, row: int) -> None:
        """A row has ended."""
        one = self._rows.pop(row)
        one.group.open -= 1
        for home in one.homes:
            self._open[home] -= 1

    def turn(self, operator: str, row: int) -> Turn:
        """Return the turn of the row's group, the row's block in it, and the operator's prefix."""
        return (*self._rows[row].turn, self._places.get(operator, 0))

    def replica(self, operator: str, row: int) -> str:
        """Return the replica of a call, `ANY` if no replica serves its model. Also `ANY` while a
        replica has no row: calls of one row run at once, and prefixes that are computed twice take
        less time than calls that wait beside an idle replica.
        """
        number = self._pool.get(operator)
        if number is None:
            return ANY
        pool = self._pools[number]
        # A call for any replica may go to those with other models, too.
        if len(pool) == len(self._windows) and not all(self._open[name] for name in pool):
            return ANY
        return self._rows[row].homes[number]

    def _home(self, number: int, known: _Group | None) -> str:
        """Return the window of a row within a pool. known: the group that it follows."""
        pool = self._pools[number]
        least = min(
            pool, key=lambda name: (self._open[name] / self._rates[name], -self._speeds[name])
        )
        if known is None:
            return least
        home = known.homes[number]
        # A window of rows more than elsewhere is more than the shared prefix is worth: the replica
        # with less work computes it once, too.
        ahead = self._open[home] - self._open[least] * self._rates[home] / self._rates[least]
        return least if ahead > self._windows[home] else home


def _places(workflow: Workflow, path: tuple[str, ...]) -> dict[str, int]:
    """Return the number of each call's prefix in a group, by the call's name in units.

    Calls share a prefix if they have the same model, and the same messages up to the last column of
    the group. A call that does not begin with these columns follows the one before it.
    """
    group, known, number = path[: max(1, len(path) - 1)], dict[Any, int](), 0
    found = {}
    for name, one, body in calls_of(workflow.operators):
        if group and _columns(one, body, workflow)[: len(group)] == group:
            prefix = (body.model or workflow.model, _beginning(one, body, group))
            number = known.setdefault(prefix, len(known))
        found[name] = number
    return found


def _beginning(one: Operator, body: Llm, columns: tuple[str, ...]) -> tuple[str, ...]:
    """Return the roles, texts and expressions of a prompt until these columns are read."""
    found: list[str] = []
    missing = set(columns)
    for message in body.messages:
        found.append(message.role)
        content = message.content
        for part, names in zip(content.parts, content.names_of_parts(), strict=True):
            if not missing:
                return tuple(found)
            found.append(part.text if isinstance(part, Constant) else part.source)
            missing -= {one.for_each if name in _ITEM else name for name in names}
    return tuple(found)


def _level(keys: list[bytes]) -> bytes:
    """Return the digest by which rows are grouped."""
    # The last column of a path usually differs in each row.
    return keys[max(0, len(keys) - 2)] if keys else b""


def _keys(values: list[Any]) -> list[bytes]:
    """Return a digest of each beginning of a path."""
    found, digest = [], blake2b(digest_size=16)
    for value in values:
        text = value if isinstance(value, str) else orjson.dumps(value).decode()
        digest.update(f"{len(text)}:".encode())
        digest.update(text.encode("utf-8", "surrogatepass"))
        found.append(digest.digest())
    return found
