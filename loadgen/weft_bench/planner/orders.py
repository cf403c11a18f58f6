"""Candidate orders of a plan, as nested sequences over blocks of rows. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from weft_run.plan.calls import PlannedCall

from weft_bench.planner.placing import Share
from weft_bench.planner.problem import Operation
from weft_bench.planner.schedule import depths, schedule
from weft_bench.planner.token_steps import Worker

# Rows of a block.
_BLOCK: Final = 8


@dataclass(frozen=True)
class Lane:
    """The order on one replica. sequences: numbers of operators; a sequence runs row by row. block:
    rows that pass all sequences before the next rows begin; 0 for all rows. places: for each
    operator in `operators` (sorted), the calls of earlier sequences per row, its place in its
    sequence, and the length of that.
    """

    sequences: tuple[tuple[int, ...], ...]
    block: int
    rows: int
    operators: tuple[int, ...]
    places: tuple[tuple[int, int, int], ...]

    @classmethod
    def of(cls, sequences: Sequence[Sequence[int]], block: int, rows: int) -> Lane:
        """Return the lane of nested sequences. rows: the most that an operator has here."""
        kept = tuple(tuple(one) for one in sequences if one)
        before = [0, *accumulate(len(one) for one in kept)]
        places = {
            number: (before[at], k, len(one))
            for at, one in enumerate(kept)
            for k, number in enumerate(one)
        }
        names = tuple(sorted(places))
        return cls(kept, block, max(1, rows), names, tuple(places[name] for name in names))

    def turn(self, number: int, rank: int) -> int:
        """Return the turn of an operator in the replica's row `rank`. Each turn occurs once."""
        before, place, length = self.places[bisect_left(self.operators, number)]
        width = self.block or self.rows
        block, row = divmod(rank, width)
        start = block * width * len(self.operators)
        return start + before * width + row * length + place


@dataclass(frozen=True, slots=True)
class Order:
    """An order for all replicas. sequences: numbers of operators. block: as in `Lane`."""

    name: str
    sequences: tuple[tuple[int, ...], ...]
    block: int


def orders(
    calls: Sequence[PlannedCall], worker: Worker, found: Sequence[Operation], block: int
) -> list[Order]:
    """Return candidate orders: Helium's sequences, and two by remaining path.

    The remaining path of an operator is the longest sum of expected answers from it to an output,
    as the upward rank of list scheduling (HEFT): answers take most of the time. Operators with the
    longest one come first, each over all rows, or row by row with those of the same depth.
    """
    place = {call.name: number for number, call in enumerate(calls)}
    helium = schedule(calls, {"all": worker}, block=block)["all"]
    nested = tuple(tuple(place[name] for name in sequence) for sequence in helium)
    depth, path = depths(calls), _paths(found)
    ranked = sorted(range(len(found)), key=lambda number: (-path[number], number))
    levels: dict[int, list[int]] = {}
    for number in ranked:
        levels.setdefault(-depth[calls[number].name], []).append(number)
    by_level = tuple(tuple(levels[level]) for level in sorted(levels))
    by_path = tuple((number,) for number in ranked)
    return [
        Order("prefix", nested, 0),
        Order(f"prefix, blocks of {_BLOCK}", nested, _BLOCK),
        Order("path", by_path, 0),
        Order("levels", by_level, 0),
        Order(f"levels, blocks of {_BLOCK}", by_level, _BLOCK),
    ]


def _paths(found: Sequence[Operation]) -> list[float]:
    """Return the remaining path of each operator in tokens, including its answer."""
    paths = [0.0] * len(found)
    for number in range(len(found) - 1, -1, -1):
        paths[number] += found[number].answer
        for need in found[number].needs:
            paths[need] = max(paths[need], paths[number])
    return paths


def lanes(order: Order, shares: Sequence[Share], rows: int, replicas: int) -> tuple[Lane, ...]:
    """Return the order on each replica, with the operators that it serves."""
    made = []
    for at in range(replicas):
        here = {number for one in shares if at in one.replicas for number in one.operators}
        kept = [[number for number in one if number in here] for one in order.sequences]
        most = max((one.rows(at, rows) for one in shares), default=1)
        made.append(Lane.of(kept, order.block, most))
    return tuple(made)
