"""Failing background tasks of a whole gateway are logged, counted, reported and restarted."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from support.waiting import DEADLINE_S

pytestmark = [pytest.mark.system, pytest.mark.anyio]


async def test_a_failing_task_is_logged_counted_restarted_and_reported_by_health(
    engine: Any, weft: Any, until: Any, monkeypatch: Any, caplog: Any
) -> None:
    # With a lease of one second, the task that renews leases runs four times a second.
    async with engine() as stub, weft(stub, call_lease_s=1.0) as gateway:
        health = (await gateway.client.get("/health")).json()
        assert health["failing_tasks"] == []
        assert 'weft_task_failures_total{task="reap"} 0.0' in await metrics(gateway)
        failing, calls = True, []

        async def expire(*about: Any) -> list[Any]:
            calls.append(about)
            if failing:
                raise RuntimeError("the detail is for the log")
            return []

        monkeypatch.setattr(gateway.parts.table, "expire", expire)
        await until(lambda: len(calls) >= 2)
        got = await gateway.client.get("/health")
        assert got.status_code == 200
        (task,) = got.json()["failing_tasks"]
        assert (task["name"], task["last_error"]) == ("reap", "RuntimeError")
        assert task["failures"] >= 1
        assert "for the log" not in got.text
        assert health.keys() == got.json().keys() > {"status", "table", "replicas"}
        assert 'weft_task_failures_total{task="reap"} 0.0' not in await metrics(gateway)
        lines = [record for record in caplog.records if "background task reap" in record.message]
        assert lines
        assert lines[0].levelname == "ERROR"
        assert "the detail is for the log" in caplog.text
        # Calls continue, and the task recovers when the fault is over.
        assert (await gateway.call()).status_code == 200
        failing = False
        done = len(calls)
        await until(lambda: len(calls) >= done + 3)


TASKS = {
    "health", "deadlines", "departures", "keep_alives", "reap", "program_ends", "sweep",
    "background_calls",
}  # fmt: skip


async def test_every_background_task_is_restarted(engine: Any, weft: Any, until: Any) -> None:
    async with engine() as stub, weft(stub, calls_in_flight=9) as gateway:
        tasks = {task.get_name(): task for task in asyncio.all_tasks() if task.get_name() in TASKS}
        assert tasks.keys() == TASKS
        for task in tasks.values():
            task.cancel()
        counted = [f'weft_task_failures_total{{task="{name}"}} 1.0' for name in TASKS]
        async with asyncio.timeout(DEADLINE_S):
            while True:
                shown = await metrics(gateway)
                if all(line in shown for line in counted):
                    break
                await asyncio.sleep(0.01)
        health = (await gateway.client.get("/health")).json()
        assert {task["name"] for task in health["failing_tasks"]} == TASKS
        assert not any(task.done() for task in tasks.values())


async def test_health_checks_continue_after_a_malformed_state(
    engine: Any, weft: Any, until: Any
) -> None:
    async with engine(weft=False) as stub, engine() as other:
        stub.canned["/weft/state"] = ["weft"]
        async with weft(stub, other, health_interval_s=0.02) as gateway:
            first, second = gateway.parts.registry
            assert (await gateway.client.get("/health")).status_code == 200
            other.healthy = False
            await until(lambda: not second.circuit.healthy)
            other.healthy = True
            await until(lambda: second.circuit.healthy)
            assert first.circuit.healthy
            assert (await gateway.client.get("/health")).json()["failing_tasks"] == []


async def test_a_failing_spawned_coroutine_is_counted(
    engine: Any, weft: Any, until: Any, caplog: Any
) -> None:
    async def work() -> None:
        await asyncio.sleep(0)
        raise ValueError("of a spawned coroutine")

    async with engine() as stub, weft(stub) as gateway:
        gateway.parts.spawner.spawn(work())
        await until(lambda: "of a spawned coroutine" in caplog.text)
        assert 'weft_task_failures_total{task="ledger"} 1.0' in await metrics(gateway)
        assert json.loads((await gateway.client.get("/health")).text)["status"] == "ok"


async def metrics(gateway: Any) -> str:
    return str((await gateway.client.get("/metrics")).text)
