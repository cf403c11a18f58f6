"""The closed loop, with calls that are answered at once or after another call."""

from __future__ import annotations

import asyncio

import pytest
from support.waiting import DEADLINE_S
from weft_bench.drive.loop import closed_loop
from weft_bench.workloads.cutting import ReadyCall, ReadyProgram
from weft_bench.workloads.schema import Part, TraceCall


def program(*after) -> ReadyProgram:
    calls = tuple(ReadyCall(TraceCall(parts=(Part("a", 1),), after=a), 1, 1) for a in after)
    return ReadyProgram("p", calls, cut=False, trimmed=False)


@pytest.mark.anyio
async def test_calls_wait_only_for_the_calls_they_need():
    order: list[tuple[str, int]] = []
    joined = asyncio.Event()

    async def ask(number: int) -> bool:
        order.append(("begun", number))
        if number == 1:
            # Answered only after the parallel call has begun.
            await asyncio.wait_for(joined.wait(), DEADLINE_S)
        if number == 2:
            joined.set()
        order.append(("answered", number))
        return True

    await closed_loop(program((), (0,), (0,), (1, 2)), 0.0, lambda _: 0.0, ask)
    at = {what: place for place, what in enumerate(order)}
    assert at["begun", 1] > at["answered", 0] < at["begun", 2]
    assert at["begun", 3] > max(at["answered", 1], at["answered", 2])


@pytest.mark.anyio
async def test_gap_is_that_of_the_needed_call():
    asked: list[int] = []

    def gap_s(number: int) -> float:
        asked.append(number)
        return 0.0

    async def ask(number: int) -> bool:
        return True

    await closed_loop(program(None, None, (0,)), 0.0, gap_s, ask)
    assert sorted(asked) == [0, 0]


@pytest.mark.anyio
async def test_no_call_starts_after_a_failed_one():
    begun: list[int] = []

    async def ask(number: int) -> bool:
        begun.append(number)
        return number != 1

    await closed_loop(program(None, None, None, None), 0.0, lambda _: 0.0, ask)
    assert begun == [0, 1]
