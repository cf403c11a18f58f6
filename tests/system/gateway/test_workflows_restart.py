"""A gateway is killed during a run of a workflow, and the next one finishes it."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.batches import CALLS, served
from support.stack import free_port
from support.workflow_runs import begin, chat, created, ended, output, texts

pytestmark = [pytest.mark.system, pytest.mark.anyio]

TWO_STEPS = """
weft: 1
name: two-steps
inputs: {text: str}
ops:
  first: {llm: {user: "{{ text }}", max_tokens: 4}}
  second: {llm: {user: "again {{ first }}", max_tokens: 4}}
outputs: {second: second}
"""
ROWS = 60


async def test_a_killed_gateway_continues_its_runs(tmp_path: Path, engine: Any, until: Any) -> None:
    sent: list[str] = []
    pause = ROWS

    async def slow(wire: Any, request: Any) -> None:
        sent.append(request.json["messages"][0]["content"])
        if len(sent) > pause:
            await asyncio.sleep(0.05)
        with contextlib.suppress(ConnectionError):
            await chat(wire, request)

    port, folder = free_port(), tmp_path / "data"
    url = f"http://127.0.0.1:{port}"
    async with (
        engine(script=slow) as stub,
        httpx.AsyncClient(base_url=url, timeout=60, trust_env=False) as client,
    ):
        async with served(port, stub.url, folder) as process:
            begun = await begin(client, await created(client, TWO_STEPS), rows=texts(ROWS))
            await until(lambda: len(sent) > pause)
            process.kill()
            await process.wait()
        before = len(sent)
        pause = 10_000
        async with served(port, stub.url, folder):
            run = await ended(client, begun["id"])
            assert run["status"] == "completed", run
            assert run["row_counts"] == {"total": ROWS, "completed": ROWS, "failed": 0}
            rows = await output(client, begun["id"])
    assert rows == [
        {"row": n, "second": f"re: again re: text {n}", "error": None} for n in range(ROWS)
    ]
    assert before < 2 * ROWS
    # At most the calls in flight were computed twice.
    assert 2 * ROWS <= len(sent) <= 2 * ROWS + CALLS


async def test_joined_runs_continue_each(tmp_path: Path, engine: Any, until: Any) -> None:
    sent: list[str] = []
    pause, gate = 10, asyncio.Event()

    async def slow(wire: Any, request: Any) -> None:
        sent.append(request.json["messages"][0]["content"])
        if len(sent) > pause:
            await gate.wait()
        with contextlib.suppress(ConnectionError):
            await chat(wire, request)

    port, folder = free_port(), tmp_path / "data"
    url = f"http://127.0.0.1:{port}"
    async with (
        engine(script=slow) as stub,
        httpx.AsyncClient(base_url=url, timeout=60, trust_env=False) as client,
    ):
        async with served(port, stub.url, folder) as process:
            workflow = await created(client, TWO_STEPS)
            options: Any = {"rows": texts(8), "batch_ms": 60_000}
            runs = [await begin(client, workflow, **options) for _ in range(2)]
            await until(lambda: len(sent) >= pause + CALLS)
            # The runs have equal rows, so each call was made once.
            assert len(set(sent)) == len(sent)
            process.kill()
            await process.wait()
        gate.set()
        async with served(port, stub.url, folder):
            for begun in runs:
                run = await ended(client, begun["id"])
                assert run["status"] == "completed", run
                assert await output(client, begun["id"]) == [
                    {"row": n, "second": f"re: again re: text {n}", "error": None} for n in range(8)
                ]
    # At most the calls in flight were made twice.
    assert 16 <= len(sent) <= 16 + CALLS


async def test_a_cancelled_run_ends_after_a_restart(
    tmp_path: Path, engine: Any, until: Any
) -> None:
    async def hold(wire: Any, request: Any) -> None:
        if len(stub.requests) > 5:
            await asyncio.Event().wait()
        await chat(wire, request)

    port, folder = free_port(), tmp_path / "data"
    url = f"http://127.0.0.1:{port}"
    async with (
        engine(script=hold) as stub,
        httpx.AsyncClient(base_url=url, timeout=60, trust_env=False) as client,
    ):
        async with served(port, stub.url, folder) as process:
            begun = await begin(client, await created(client), rows=texts(20))
            await until(lambda: len(stub.requests) > 5)
            await client.post(
                f"/v1/runs/{begun['id']}/cancel", headers={"authorization": "Bearer sk-a"}
            )
            process.kill()
            await process.wait()
        async with served(port, stub.url, folder):
            run = await ended(client, begun["id"])
            assert run["status"] == "cancelled"
            rows = await output(client, begun["id"])
    assert len(rows) <= 5
    assert all(row["error"] is None for row in rows)
    assert len(stub.requests) <= 5 + CALLS
