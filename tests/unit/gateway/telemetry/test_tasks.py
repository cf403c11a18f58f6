"""Background tasks that fail, return or cancel themselves, on a real event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest
from support.waiting import DEADLINE_S
from weft_gateway.telemetry.metrics import Metrics
from weft_gateway.telemetry.tasks import Supervisor

pytestmark = pytest.mark.anyio


def supervisor(metrics: Metrics, **options: float) -> Supervisor:
    return Supervisor(metrics.task_failures, **{"first_pause_s": 0.001, **options})


def counted(metrics: Metrics, task: str) -> float | None:
    return metrics.registry.get_sample_value("weft_task_failures_total", {"task": task})


class Work:
    """Work that runs each of `steps` and then waits until it is cancelled."""

    def __init__(self, *steps: Callable[[], Any]) -> None:
        self._steps = list(steps)
        self.waits = asyncio.Event()
        self.starts = 0

    async def run(self) -> None:
        self.starts += 1
        if self._steps:
            self._steps.pop(0)()
            return
        self.waits.set()
        await asyncio.Event().wait()


def fault() -> None:
    raise ValueError("secret detail")


def group() -> None:
    raise ExceptionGroup("of a task group", [KeyError("one of several")])


def own_cancellation() -> None:
    raise asyncio.CancelledError


@pytest.mark.parametrize(
    ("step", "error"),
    [
        (fault, "ValueError"),
        (group, "KeyError"),
        (lambda: None, "returned"),
        (own_cancellation, "CancelledError"),
    ],
)
async def test_ended_task_is_logged_counted_shown_and_restarted(
    step: Any, error: str, caplog: pytest.LogCaptureFixture
) -> None:
    metrics, work = Metrics(), Work(step, step)
    tasks = supervisor(metrics)
    tasks.start("reap", work.run)
    assert counted(metrics, "reap") == 0
    async with asyncio.timeout(DEADLINE_S):
        await work.waits.wait()
    assert work.starts == 3
    assert counted(metrics, "reap") == 2
    (state,) = tasks.failing()
    assert (state.name, state.failures, state.last_error) == ("reap", 2, error)
    lines = [record for record in caplog.records if "reap" in record.message]
    assert [record.levelname for record in lines] == ["ERROR", "ERROR"]
    assert ("secret detail" in caplog.text) is (step is fault)
    await tasks.stop()


async def test_pauses_double_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    real_sleep = asyncio.sleep

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        await real_sleep(0)

    monkeypatch.setattr("weft_gateway.telemetry.tasks.asyncio.sleep", sleep)
    work = Work(*[fault] * 8)
    tasks = Supervisor(Metrics().task_failures, 0.1, 5.0)
    tasks.start("t", work.run)
    async with asyncio.timeout(DEADLINE_S):
        await work.waits.wait()
    assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0])
    await tasks.stop()


async def test_stop_is_silent_and_ends_tasks_that_swallow_a_cancellation(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    metrics, before = Metrics(), asyncio.all_tasks()
    swallowed = asyncio.Event()
    raised = asyncio.Event()

    async def stubborn() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            swallowed.set()
        await asyncio.Event().wait()

    async def rude() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raised.set()
            raise ValueError("while it was stopped")

    async def in_a_pause() -> None:
        fault()

    tasks = supervisor(metrics)
    pausing = Supervisor(metrics.task_failures, 1000.0, 1000.0)
    pausing.start("pausing", in_a_pause)
    for name, work in (("stubborn", stubborn), ("rude", rude)):
        tasks.start(name, work)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    caplog.clear()
    async with asyncio.timeout(DEADLINE_S):
        await tasks.stop()
        await pausing.stop()
    assert swallowed.is_set()
    assert raised.is_set()
    assert caplog.records == []
    assert (counted(metrics, "stubborn"), counted(metrics, "rude")) == (0, 0)
    assert asyncio.all_tasks() == before
