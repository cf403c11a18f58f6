"""State of a program while it is played: progress and dependencies."""

from __future__ import annotations

from dataclasses import dataclass, field

from weft_bench.costs.model import CostModel
from weft_bench.virtual.content import Seen, parts_of
from weft_bench.virtual.records import CallRecord
from weft_bench.workloads.cutting import ReadyProgram
from weft_bench.workloads.schema import Part


@dataclass(slots=True)
class Program:
    """A program that is being played.

    parts: each call's prompt. costs: seconds that each call takes alone, 0 once answered. needs:
    the calls that each call still waits for. followers: the calls that wait for each call. due: the
    earliest known start of each call. records: those of calls that arrived. unanswered: number of
    calls without an answer.
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
    cost: CostModel,
    bytes_per_token: float,
) -> Program:
    """Return a program at its start.

    cost: of the engine's steps. bytes_per_token: see `parts_of`.
    """
    needs = [set(call.call.needs(number)) for number, call in enumerate(ready.calls)]
    followers: list[list[int]] = [[] for _ in ready.calls]
    seen = Seen()
    for number, needed_by_call in enumerate(needs):
        for needed in needed_by_call:
            followers[needed].append(number)
    return Program(
        ready=ready,
        arrival_s=arrival_s,
        parts=[parts_of(call, seen, bytes_per_token) for call in ready.calls],
        costs=ready.costs(cost),
        needs=needs,
        followers=followers,
        due=[arrival_s] * len(ready.calls),
        unanswered=len(ready.calls),
    )
