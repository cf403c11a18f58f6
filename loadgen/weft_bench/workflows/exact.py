"""The optimal order of a small batch on one worker, in the token steps of Helium (section 5).

Helium gives this problem to a MILP solver. Small batches have few sets of calls that can come
first, so that dynamic programming over these sets proves the optimum of every batch, without a
solver: of two ways to the same set with the same last call, one is dropped if the other is no later
in anything that the remaining calls wait for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from weft_bench.planner.problem import Calls
from weft_bench.planner.token_steps import Worker, delay, token_steps, usage

# Ways that the first search keeps for each number of calls. It finds a good order, and with it the
# second one drops most ways.
_WIDTH: Final = 300
_CLOSE: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Solution:
    """An order with the least token steps. ways: that were kept for the proof."""

    order: tuple[int, ...]
    steps: float
    ways: int


@dataclass(frozen=True, slots=True)
class _Way:
    """Some calls in an order. clock: when the worker is free. starts: when each call can start at
    the earliest, by its inputs and the clock; the clock for calls that are done. bound: no
    completion ends earlier.
    """

    order: tuple[int, ...]
    clock: float
    starts: tuple[float, ...]
    bound: float


def solve(calls: Calls, worker: Worker) -> Solution:
    """Return the best order. Time and memory grow exponentially with the calls: for at most about
    15 of them.
    """
    search = _Search(calls, worker)
    first = range(len(calls))
    best = min(
        (tuple(first), *(way.order for way in search.run(search.steps(first), _WIDTH)[0])),
        key=search.steps,
    )
    found, ways = search.run(search.steps(best) - _CLOSE, None)
    order = min((best, *(way.order for way in found)), key=search.steps)
    return Solution(order, search.steps(order), ways)


class _Search:
    def __init__(self, calls: Calls, worker: Worker) -> None:
        count = len(calls)
        self._calls, self._worker = calls, worker
        self._costs = {
            (before, call): usage(calls.prefill(before, call), calls.answers[call], worker.rate)
            for call in range(count)
            for before in (None, *range(count))
            if before != call
        }
        self._delays = [delay(answer, worker.rate, worker.kv_tokens) for answer in calls.answers]
        self._least = [
            min(cost for (_, to), cost in self._costs.items() if to == call)
            for call in range(count)
        ]
        self._needs = [frozenset(needs) for needs in calls.needs]
        self._followers = [
            tuple(other for other in range(count) if call in self._needs[other])
            for call in range(count)
        ]
        # Token steps from the start of a call to the end of the last one that waits for it.
        self._tails = [0.0] * count
        for call in sorted(range(count), key=lambda one: len(self._followers[one])):
            after = [self._delays[call] + self._tails[other] for other in self._followers[call]]
            self._tails[call] = self._least[call] + max(after, default=0.0)

    def steps(self, order: Sequence[int]) -> float:
        """Return the token steps of a whole order."""
        calls = self._calls
        return token_steps([order], calls.answers, calls.needs, calls.prefill, [self._worker])

    def run(self, limit: float, width: int | None) -> tuple[list[_Way], int]:
        """Return the ways through all calls that end before the limit, and the number of all ways
        that were kept. width: of the beam, None for all.
        """
        count = len(self._calls)
        ways, kept = [_Way((), 0.0, (0.0,) * count, 0.0)], 0
        for _ in range(count):
            fronts: dict[tuple[frozenset[int], int], list[_Way]] = {}
            for way in ways:
                done = frozenset(way.order)
                for call in range(count):
                    if call in done or not self._needs[call] <= done:
                        continue
                    grown = self._after(way, call, done | {call})
                    if grown.bound < limit:
                        _keep(fronts.setdefault((done | {call}, call), []), grown)
            ways = [way for front in fronts.values() for way in front]
            if width is not None:
                ways = sorted(ways, key=lambda way: (way.bound, way.order))[:width]
            kept += len(ways)
        return ways, kept

    def _after(self, way: _Way, call: int, done: frozenset[int]) -> _Way:
        last = way.order[-1] if way.order else None
        clock = way.starts[call] + self._costs[last, call]
        ready = clock + self._delays[call]
        starts = [clock if one in done else max(clock, at) for one, at in enumerate(way.starts)]
        for other in self._followers[call]:
            starts[other] = max(starts[other], ready)
        left = [one for one in range(len(starts)) if one not in done]
        bound = clock + sum(self._least[one] for one in left)
        for one in left:
            bound = max(bound, starts[one] + self._tails[one])
        return _Way((*way.order, call), clock, tuple(starts), bound)


def _keep(front: list[_Way], way: _Way) -> None:
    """Add a way unless another one is no later in anything; drop those that it makes useless."""
    if any(_no_later(one, way) for one in front):
        return
    front[:] = [one for one in front if not _no_later(way, one)]
    front.append(way)


def _no_later(one: _Way, other: _Way) -> bool:
    return one.clock <= other.clock and all(
        a <= b for a, b in zip(one.starts, other.starts, strict=True)
    )
