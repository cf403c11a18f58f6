"""Schedules that Helium is compared with (section 7.3), as orders of calls on one worker. Pure.

Each function returns a permutation of a small batch. Random, longest shared prefix first and the
orders of Parrot and KVFlow depend on the token step at which a call becomes ready, so they simulate
the worker's clock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Final

from weft_bench.planner.problem import Calls
from weft_bench.planner.token_steps import Worker, delay, usage

# Chooses one of the ready calls. last: the call before, None at the start.
Choose = Callable[[Sequence[int], int | None], int]
Baseline = Callable[[Calls, Worker, Random], list[int]]


def query_wise(calls: Calls, worker: Worker, rng: Random) -> list[int]:
    """One row after the other, its operators in topological order."""
    return sorted(range(len(calls)), key=lambda call: (calls.row[call], calls.operation[call]))


def operator_wise(calls: Calls, worker: Worker, rng: Random) -> list[int]:
    """One operator after the other, over all rows."""
    return sorted(range(len(calls)), key=lambda call: (calls.operation[call], calls.row[call]))


def random_ready(calls: Calls, worker: Worker, rng: Random) -> list[int]:
    """Any ready call (LangGraph's batches)."""
    return dispatched(calls, worker, lambda ready, last: ready[rng.randrange(len(ready))])


def longest_prefix(calls: Calls, worker: Worker, rng: Random) -> list[int]:
    """The ready call that shares the longest prefix with the call before (SGLang)."""

    def choose(ready: Sequence[int], last: int | None) -> int:
        if last is None:
            return ready[rng.randrange(len(ready))]
        return max(ready, key=lambda call: (calls.shared(last, call), -call))

    return dispatched(calls, worker, choose)


def parrot(calls: Calls, worker: Worker, rng: Random) -> list[int]:
    """Ready calls in the order of arrival, those with the first part of the last prompt first."""

    def choose(ready: Sequence[int], last: int | None) -> int:
        if last is None:
            return ready[0]
        head = calls.paths[last][:1]
        return min(ready, key=lambda call: (calls.paths[call][:1] != head, call))

    return dispatched(calls, worker, choose)


def kvflow(calls: Calls, worker: Worker, rng: Random) -> list[int]:
    """Ready calls of the operator with the fewest steps to its execution, at random among them:
    the prefix of such an agent is evicted last.
    """
    level: list[int] = []
    for needs in calls.needs:
        level.append(1 + max((level[one] for one in needs), default=-1))

    def choose(ready: Sequence[int], last: int | None) -> int:
        least = min(level[call] for call in ready)
        found = [call for call in ready if level[call] == least]
        return found[rng.randrange(len(found))]

    return dispatched(calls, worker, choose)


BASELINES: Final[Mapping[str, Baseline]] = {
    "query-wise": query_wise,
    "operator-wise": operator_wise,
    "random": random_ready,
    "longest prefix": longest_prefix,
    "parrot": parrot,
    "kvflow": kvflow,
}


def dispatched(calls: Calls, worker: Worker, choose: Choose) -> list[int]:
    """Return the order in which a worker serves ready calls. choose: is called with the calls whose
    inputs and delays have passed; if no call is ready, with those that are ready first.
    """
    order: list[int] = []
    ready: dict[int, float] = {}
    left = dict.fromkeys(range(len(calls)))
    clock, last = 0.0, None
    while left:
        starts = {
            call: max((ready[one] for one in calls.needs[call]), default=0.0)
            for call in left
            if all(one in ready for one in calls.needs[call])
        }
        clock = max(clock, min(starts.values()))
        call = choose([one for one, at in starts.items() if at <= clock], last)
        clock += usage(calls.prefill(last, call), calls.answers[call], worker.rate)
        ready[call] = clock + delay(calls.answers[call], worker.rate, worker.kv_tokens)
        order.append(call)
        last = call
        del left[call]
    return order


def nested_order(
    calls: Calls, sequences: Sequence[Sequence[int]], rows: int, block: int = 0
) -> list[int]:
    """Return the calls in the order of nested sequences: row by row within a sequence. sequences:
    numbers of operators. block: rows that pass all sequences before the next ones; 0 for all.
    """
    number = {
        (operation, row): call
        for call, (operation, row) in enumerate(zip(calls.operation, calls.row, strict=True))
    }
    width = block or rows
    return [
        number[operation, row]
        for start in range(0, rows, width)
        for sequence in sequences
        for row in range(start, min(rows, start + width))
        for operation in sequence
    ]
