"""Starts programs at their arrivals, and runs their calls in a closed loop, over any transport."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from weft_bench.workloads.cutting import ReadyProgram

_T = TypeVar("_T")


def at_arrivals(
    arrivals: Sequence[float], play: Callable[[int, float], Awaitable[_T]]
) -> list[asyncio.Task[_T]]:
    """Return a task for each program.

    play: plays the program with a number. It is called at the program's arrival, seconds from now,
    with the monotonic start of all programs.
    """
    begun = time.monotonic()

    async def later(number: int, arrival: float) -> _T:
        await asyncio.sleep(max(0.0, begun + arrival - time.monotonic()))
        return await play(number, begun)

    return [asyncio.create_task(later(n, arrival)) for n, arrival in enumerate(arrivals)]


async def closed_loop(
    program: ReadyProgram,
    begun: float,
    gap_s: Callable[[int], float],
    ask: Callable[[int], Awaitable[bool]],
) -> None:
    """Play all calls: each waits for the answers that it needs and for their gaps.

    Independent calls run in parallel. begun: earliest start of the program, monotonic seconds.
    gap_s: returns the gap after a call. ask: plays a call; after the first False no call starts.
    """
    stopped = False

    async def play(number: int) -> float:
        """Play one call when it is due. Returns when it was answered, monotonic seconds."""
        nonlocal stopped
        due = begun
        for needed in program.calls[number].call.needs(number):
            due = max(due, await tasks[needed] + gap_s(needed))
        if not stopped:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
        # Another call may have failed meanwhile.
        if not stopped and not await ask(number):
            stopped = True
        return time.monotonic()

    tasks: list[asyncio.Task[float]] = []
    async with asyncio.TaskGroup() as group:
        tasks += [group.create_task(play(number)) for number in range(len(program.calls))]
