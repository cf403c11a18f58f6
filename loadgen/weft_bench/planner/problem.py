"""The calls of a batch for prediction and for small exact plans: operators times rows. Pure.

Planning large batches uses a sample of the rows; plans themselves never list rows.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, log
from statistics import NormalDist
from typing import Final

from weft_run.plan.calls import PlannedCall
from weft_run.plan.prompts import Slot, cut

from weft_bench.planner.radix import Node, RadixTree

# Calls of one operator in one row that a prediction plays; more are merged.
_COPIES: Final = 8
# Places where a prompt can begin to vary, at most, within a node.
_PARTS: Final = 1024
# Standard deviations from the mean to the 90th percentile.
_HIGH: Final = NormalDist().inv_cdf(0.9)


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a prompt, or the answer behind it: a node of the tree, cut where the content begins
    to vary over another axis. node: identifies it. tokens: its length. end: tokens from the start
    of the prompt to its end. axes: over which its content varies.
    """

    node: int
    tokens: int
    end: int
    axes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Operation:
    """An operator of the batch. path: the pieces of its prompt. trail: the pieces that an answer
    adds to the cache. spread: standard deviation of the answer's logarithm. needs: numbers of
    operators. copies: calls in one row.
    """

    name: str
    model: str
    path: tuple[Piece, ...]
    trail: tuple[Piece, ...]
    prompt: int
    answer: float
    spread: float
    needs: tuple[int, ...]
    copies: int


def operations(calls: Sequence[PlannedCall], tree: RadixTree) -> tuple[Operation, ...]:
    """Return the operators of a batch with their paths in the tree."""
    place = {call.name: number for number, call in enumerate(calls)}
    found = []
    for call in calls:
        leaf = tree.leaf(call.name)
        nodes = leaf.path()
        path = tuple(piece for node in nodes for piece in _pieces(node))
        rest = tree.trails[call.name].path()[len(nodes) :]
        trail = tuple(piece for node in rest for piece in _pieces(node))
        copies = max(1, min(_COPIES, ceil(call.per_row)))
        answer = call.answer * call.per_row / copies
        needs = tuple(place[need] for need in call.needs)
        spread = log(max(1.0, call.answer_high / call.answer)) / _HIGH if call.answer else 0.0
        found.append(
            Operation(call.name, call.model, path, trail, leaf.end, answer, spread, needs, copies)
        )
    return tuple(found)


def _pieces(node: Node) -> Iterator[Piece]:
    """Cut a node where its content begins to vary over another axis."""
    assert node.parent is not None
    axes, end, tokens, part = node.parent.axes, node.parent.end, 0, 0
    if node.axes == axes:
        yield Piece(node.number * _PARTS, node.tokens, node.end, tuple(sorted(axes)))
        return
    for symbol in node.symbols:
        length = 1
        if isinstance(symbol, Slot):
            length = symbol.tokens
            if not axes.issuperset(symbol.axes):
                if tokens:
                    yield Piece(node.number * _PARTS + part, tokens, end, tuple(sorted(axes)))
                    part, tokens = part + 1, 0
                axes = axes.union(symbol.axes)
        tokens += length
        end += length
    if tokens:
        yield Piece(node.number * _PARTS + part, tokens, end, tuple(sorted(axes)))


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a batch. distinct: distinct values of an axis; rows are sorted so that equal
    values are neighbours. Other axes differ in each row.
    """

    count: int
    distinct: Mapping[str, int]

    def value(self, axes: Sequence[str], rank: int) -> Hashable:
        """Return the value of these axes in a row. rank: its place in the order of the plan."""
        if all(axis in self.distinct for axis in axes):
            return tuple(rank * min(self.count, self.distinct[axis]) // self.count for axis in axes)
        return rank


@dataclass(frozen=True, slots=True)
class Calls:
    """All calls of a small batch, one worker's view. operation, row: of each call. needs: numbers
    of calls, direct and indirect.
    """

    operation: tuple[int, ...]
    row: tuple[int, ...]
    answers: tuple[float, ...]
    needs: tuple[tuple[int, ...], ...]
    paths: tuple[tuple[tuple[Hashable, int], ...], ...]
    block: int

    def __len__(self) -> int:
        return len(self.operation)

    def shared(self, before: int, after: int) -> int:
        """Return the tokens at the start of both prompts that are the same, whole blocks only."""
        same = 0
        for (one, tokens), (other, _) in zip(self.paths[before], self.paths[after], strict=False):
            if one != other:
                break
            same += tokens
        return cut(same, self.block)

    def length(self, call: int) -> int:
        """Return the tokens of a prompt."""
        return sum(tokens for _, tokens in self.paths[call])

    def prefill(self, before: int | None, after: int) -> float:
        """Return u_p: prompt tokens that the call before does not share."""
        whole = self.length(after)
        return whole if before is None else max(0, whole - self.shared(before, after))


def expand(
    found: Sequence[Operation], closure: Sequence[Sequence[int]], rows: Rows, block: int
) -> Calls:
    """Return all calls, row by row. closure: direct and indirect dependencies of each operator."""
    count = len(found)
    numbers = [(row, number) for row in range(rows.count) for number in range(count)]
    return Calls(
        tuple(number for _, number in numbers),
        tuple(row for row, _ in numbers),
        tuple(found[number].answer for _, number in numbers),
        tuple(tuple(row * count + need for need in closure[number]) for row, number in numbers),
        tuple(
            tuple(
                ((piece.node, rows.value(piece.axes, row) if piece.axes else 0), piece.tokens)
                for piece in found[number].path
            )
            for row, number in numbers
        ),
        block,
    )
