"""A program while it is played: what of it has happened, and what waits for what."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from weft_bench.virtual.content import Seen, parts_of
from weft_bench.virtual.records import CallRecord
from weft_bench.workloads.cutting import ReadyProgram
from weft_bench.workloads.schema import Part


@dataclass(slots=True)
class Program:
    """parts: each call's prompt. costs: seconds that each call takes alone, 0 once it was answered.
    needs: the calls that each still waits for. followers: who waits for it. due: when each may come
    by what is known so far. records: of the calls that have come. unanswered: how many calls are.
    """

    ready: ReadyProgram
    arrival_s: float
    parts: list[tuple[Part, ...]]
    costs: list[float]
    needs: list[set[int]]
    followers: list[list[int]]
    due: list[float]
    records: list[CallRecord] = field(default_factory=list)
    unanswered: int = 0


def begin_program(
    ready: ReadyProgram,
    arrival_s: float,
    alone: Callable[[int, int], float],
    bytes_per_token: float,
) -> Program:
    """A program of which nothing has happened. alone: seconds that a call takes by itself, by fresh
    prompt tokens and output tokens. bytes_per_token: as of `parts_of`."""
    needs = [set(call.call.needs(number)) for number, call in enumerate(ready.calls)]
    followers: list[list[int]] = [[] for _ in ready.calls]
    costs = []
    seen = Seen()
    for number, call in enumerate(ready.calls):
        for needed in needs[number]:
            followers[needed].append(number)
        known = max((ready.calls[n].prompt_tokens for n in needs[number]), default=0)
        costs.append(alone(max(0, call.prompt_tokens - known), call.max_tokens))
    return Program(
        ready=ready,
        arrival_s=arrival_s,
        parts=[parts_of(call, seen, bytes_per_token) for call in ready.calls],
        costs=costs,
        needs=needs,
        followers=followers,
        due=[arrival_s] * len(ready.calls),
        unanswered=len(ready.calls),
    )
