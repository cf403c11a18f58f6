"""Limits of eviction notices: concurrency, queue length and age."""

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
    """Records notices. Each notice waits until `go` is set."""

    def __init__(self) -> None:
        self.noticed: list[str] = []
        self.most = 0
        self.go = asyncio.Event()
        self._active = 0

    async def advise(self, key: ProgramKey, names: Iterable[str], action: str) -> None:
        assert (list(names), action) == (["r0"], "forget")
        self._active += 1
        self.most = max(self.most, self._active)
        try:
            await self.go.wait()
            await asyncio.sleep(0)
        finally:
            self._active -= 1
        self.noticed.append(key.program)


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
        while len(engines.noticed) < count:  # noqa: ASYNC110
            await asyncio.sleep(0)


async def test_burst_of_notices_is_bounded_and_drops_the_oldest() -> None:
    engines = Engines()
    notifier = EvictionNotifier(engines, lambda key: False, most=500, patience_s=math.inf)
    async with running(notifier):
        notifier.add(gone(range(1_000_000), "r0"))
        engines.go.set()
        await until(engines, 500)
        notifier.add(gone(["later"], "r0"))
        await until(engines, 501)
    assert sorted(engines.noticed[:500], key=int) == [str(n) for n in range(999_500, 1_000_000)]
    assert engines.noticed[500:] == ["later"]
    assert 1 < engines.most <= 8


async def test_active_or_unpinned_programs_get_no_notice() -> None:
    engines = Engines()
    engines.go.set()
    notifier = EvictionNotifier(engines, lambda key: key.program == "back")
    async with running(notifier):
        notifier.add(gone(["nowhere"]))
        notifier.add(gone(["back", "gone"], "r0"))
        await until(engines, 1)
    assert engines.noticed == ["gone"]


async def test_late_notices_are_dropped() -> None:
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
    assert set(engines.noticed) == {*map(str, range(8)), "fresh"}


async def test_concurrency_limit_holds_after_a_failure() -> None:
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
