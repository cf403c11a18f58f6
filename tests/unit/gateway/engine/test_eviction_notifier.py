"""How many are told at once, how many wait, and who is not told."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Iterable, Iterator

import pytest
from weft_gateway.engine.eviction_notifier import EvictionNotifier
from weft_gateway.model import EndedProgram, ProgramKey

pytestmark = pytest.mark.anyio


class Engines:
    """Notes who is told, and holds on to each one until it may `go`."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.most = 0
        self.go = asyncio.Event()
        self._telling = 0

    async def advise(self, key: ProgramKey, names: Iterable[str], action: str) -> None:
        assert (list(names), action) == (["r0"], "forget")
        self._telling += 1
        self.most = max(self.most, self._telling)
        try:
            await self.go.wait()
            await asyncio.sleep(0)
        finally:
            self._telling -= 1
        self.told.append(key.program)


def gone(names: Iterable[object], *replicas: str) -> Iterator[EndedProgram]:
    return (EndedProgram(ProgramKey("t", str(name)), replicas) for name in names)


@contextlib.asynccontextmanager
async def running(notifier: EvictionNotifier) -> AsyncIterator[None]:
    task = asyncio.create_task(notifier.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(engines: Engines, count: int) -> None:
    async with asyncio.timeout(20):
        while len(engines.told) < count:  # noqa: ASYNC110
            await asyncio.sleep(0)


async def test_a_million_that_end_at_once_are_told_a_few_at_a_time_and_the_first_never() -> None:
    engines = Engines()
    notifier = EvictionNotifier(engines, lambda key: False, most=500, patience_s=math.inf)
    async with running(notifier):
        notifier.add(gone(range(1_000_000), "r0"))
        engines.go.set()
        await until(engines, 500)
        notifier.add(gone(["later"], "r0"))
        await until(engines, 501)
    assert sorted(engines.told[:500], key=int) == [str(n) for n in range(999_500, 1_000_000)]
    assert engines.told[500:] == ["later"]
    assert 1 < engines.most <= 8


async def test_who_is_back_or_was_pinned_nowhere_is_not_told_of() -> None:
    engines = Engines()
    engines.go.set()
    notifier = EvictionNotifier(engines, lambda key: key.program == "back")
    async with running(notifier):
        notifier.add(gone(["nowhere"]))
        notifier.add(gone(["back", "gone"], "r0"))
        await until(engines, 1)
    assert engines.told == ["gone"]


async def test_what_has_waited_for_too_long_is_told_no_more() -> None:
    engines = Engines()
    notifier = EvictionNotifier(engines, lambda key: False, patience_s=0.05)
    loop = asyncio.get_running_loop()
    async with running(notifier):
        notifier.add(gone(range(20), "r0"))
        over = loop.time() + 0.05
        async with asyncio.timeout(20):
            while loop.time() <= over:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        engines.go.set()
        await until(engines, 8)
        notifier.add(gone(["fresh"], "r0"))
        await until(engines, 9)
    assert set(engines.told) == {*map(str, range(8)), "fresh"}


async def test_after_a_failure_as_few_are_told_at_once_as_before() -> None:
    engines = Engines()
    faults = iter([RuntimeError("a fault")])

    def is_back(key: ProgramKey) -> bool:
        if (fault := next(faults, None)) is not None:
            raise fault
        return False

    before = asyncio.all_tasks()
    notifier = EvictionNotifier(engines, is_back, patience_s=math.inf)
    notifier.add(gone(range(100), "r0"))
    async with asyncio.timeout(20):
        with pytest.raises(ExceptionGroup):
            await notifier.run()
    assert asyncio.all_tasks() == before
    async with running(notifier):
        engines.go.set()
        await until(engines, 90)
    assert engines.most <= 8
