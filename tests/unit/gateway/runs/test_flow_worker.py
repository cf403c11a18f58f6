"""The messages of a process of runs."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest
from weft_gateway.runs import flow_worker
from weft_gateway.runs.flow_rules import Rules
from weft_gateway.runs.flow_wire import Cancel, Over, Start

pytestmark = pytest.mark.anyio


async def test_a_cancellation_right_after_the_start_is_kept(monkeypatch: Any) -> None:
    cancelled = asyncio.Event()

    class Run:
        def __init__(self, *_: Any) -> None:
            pass

        def cancel(self) -> None:
            cancelled.set()

        async def run(self) -> Over:
            await cancelled.wait()
            return Over("run-1", "cancelled")

    monkeypatch.setattr(flow_worker, "FlowRun", Run)
    monkeypatch.setattr(flow_worker, "Shared", lambda *_: None)
    reading, writing = os.pipe()
    try:
        worker = flow_worker._Main(-1, writing)
        rules = Rules({}, frozenset(), ())
        start = Start("run-1", "", "w.yaml", "", rules, "m", 1, None, None, 1, 1, 1, finish=False)
        # Both arrive in one turn of the loop.
        worker._came(start)
        worker._came(Cancel("run-1"))
        assert cancelled.is_set()
        await asyncio.gather(*worker._tasks)
        assert b"cancelled" in os.read(reading, 4096)
    finally:
        os.close(reading)
        os.close(writing)
