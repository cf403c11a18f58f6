"""A gateway is killed during a run of a workflow, and the next one finishes it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.batches import CALLS, served
from support.stack import free_port
from support.workflow_runs import SAY, begin, chat, created, ended, headers_of, output, texts
from weft_gateway.runs import flow_runner
from weft_gateway.runs.flow_group import Group
from weft_gateway.runs.flow_wire import INPUT, OUTPUT, Start, Wrong
from weft_run.io.job import Job, Opened
from weft_run.io.journal import RowEnd
from weft_run.language.spec import load

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


@contextlib.asynccontextmanager
async def addressed(engine: Any, script: Any) -> AsyncIterator[tuple[int, str, httpx.AsyncClient]]:
    """Yield a port for a gateway, the URL of an engine with this script, and a client."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    async with (
        engine(script=script) as stub,
        httpx.AsyncClient(base_url=url, timeout=60, trust_env=False) as client,
    ):
        yield port, stub.url, client


def holding(sent: list[str], after: int, gate: asyncio.Event) -> Any:
    """Return an engine's script that notes prompts in `sent`. Calls above `after` wait for the
    gate.
    """

    async def script(wire: Any, request: Any) -> None:
        sent.append(request.json["messages"][0]["content"])
        if len(sent) > after:
            await gate.wait()
        with contextlib.suppress(ConnectionError):
            await chat(wire, request)

    return script


async def test_a_killed_gateway_continues_its_runs(tmp_path: Path, engine: Any, until: Any) -> None:
    sent: list[str] = []
    gate, folder = asyncio.Event(), tmp_path / "data"
    async with addressed(engine, holding(sent, ROWS, gate)) as (port, stub, client):
        async with served(port, stub, folder) as process:
            begun = await begin(client, await created(client, TWO_STEPS), rows=texts(ROWS))
            await until(lambda: len(sent) > ROWS)
            process.kill()
            await process.wait()
        before = len(sent)
        gate.set()
        async with served(port, stub, folder):
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


async def test_the_figures_of_a_run_do_not_go_back_after_a_restart(
    tmp_path: Path, engine: Any, until: Any
) -> None:
    sent: list[str] = []
    gate, folder = asyncio.Event(), tmp_path / "data"

    async def figures(client: httpx.AsyncClient, run_id: str) -> tuple[int, int]:
        run = (await client.get(f"/v1/runs/{run_id}", headers=headers_of("sk-a"))).json()
        return run["row_counts"]["completed"], run["usage"]["total_tokens"]

    async with addressed(engine, holding(sent, ROWS, gate)) as (port, stub, client):
        async with served(port, stub, folder) as process:
            begun = await begin(client, await created(client), rows=texts(2 * ROWS))
            # Each news of the process is stored a second after the one before, at the latest.
            while (await figures(client, begun["id"]))[0] < ROWS:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            await asyncio.sleep(1.5)
            process.kill()
            await process.wait()
        (lock,) = folder.rglob("*.journal-lock")
        seen = []
        with lock.open("a") as held:
            # The run cannot open its journal before the lock is released.
            fcntl.flock(held, fcntl.LOCK_EX)
            async with served(port, stub, folder):
                for _ in range(60):
                    seen.append(await figures(client, begun["id"]))
                    await asyncio.sleep(0.05)
                gate.set()
                fcntl.flock(held, fcntl.LOCK_UN)
                await ended(client, begun["id"])
                seen.append(await figures(client, begun["id"]))
    assert seen == sorted(seen)
    assert seen[0][0] > 0
    assert seen[-1] == (2 * ROWS, 2 * ROWS * 7)


async def test_joined_runs_continue_each(tmp_path: Path, engine: Any, until: Any) -> None:
    sent: list[str] = []
    after, gate, folder = 10, asyncio.Event(), tmp_path / "data"
    async with addressed(engine, holding(sent, after, gate)) as (port, stub, client):
        async with served(port, stub, folder) as process:
            workflow = await created(client, TWO_STEPS)
            options: Any = {"rows": texts(8), "batch_ms": 60_000}
            runs = [await begin(client, workflow, **options) for _ in range(2)]
            await until(lambda: len(sent) >= after + CALLS)
            # The runs have equal rows, so each call was made once.
            assert len(set(sent)) == len(sent)
            process.kill()
            await process.wait()
        gate.set()
        async with served(port, stub, folder):
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
    sent: list[str] = []
    folder = tmp_path / "data"
    async with addressed(engine, holding(sent, 5, asyncio.Event())) as (port, stub, client):
        async with served(port, stub, folder) as process:
            begun = await begin(client, await created(client), rows=texts(20))
            await until(lambda: len(sent) > 5)
            await client.post(
                f"/v1/runs/{begun['id']}/cancel", headers={"authorization": "Bearer sk-a"}
            )
            process.kill()
            await process.wait()
        async with served(port, stub, folder):
            run = await ended(client, begun["id"])
            assert run["status"] == "cancelled"
            rows = await output(client, begun["id"])
    assert len(rows) <= 5
    assert all(row["error"] is None for row in rows)
    assert len(sent) <= 5 + CALLS


async def test_a_cancelled_run_does_not_wait_for_a_place(
    engine: Any, weft: Any, until: Any
) -> None:
    sent: list[str] = []
    gate = asyncio.Event()
    holds = holding(sent, 0, gate)
    async with engine(script=holds) as stub, weft(stub, workflow_runs=1) as gateway:
        client, store = gateway.client, gateway.parts.offline.flows.store
        workflow = await created(client)
        first = await begin(client, workflow, rows=texts(1))
        await until(lambda: sent)
        fresh, begun = [await begin(client, workflow, rows=texts(3)) for _ in range(2)]
        # An earlier process has finished a row of this run.
        folder = store.folder(begun["id"])
        opened = Opened(Job(load(SAY), folder / INPUT, folder / OUTPUT), resume=False)
        row = {"row": 1, "said": "before", "error": None}
        await opened.journal.write(RowEnd(1, failed=False, value=row))
        opened.journal.close()
        for one, has_output in ((fresh, False), (begun, True)):
            path = f"/v1/runs/{one['id']}"
            assert (await client.get(path, headers=headers_of("sk-a"))).json()["status"] == "queued"
            await client.post(f"{path}/cancel", headers=headers_of("sk-a"))
            over = await ended(client, one["id"])
            assert over["status"] == "cancelled"
            assert (over["output_file_id"] is not None) is has_output
        assert await output(client, begun["id"]) == [row]
        gate.set()
        assert (await ended(client, first["id"]))["status"] == "completed"
    assert sent == ["text 0"]


async def test_a_full_disk_does_not_end_a_run(
    engine: Any, weft: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first process of the run reports a full disk in place of its end."""
    monkeypatch.setattr(flow_runner, "_AGAIN_S", 0.01)
    work, ends = Group.work, []
    sent: list[str] = []

    async def full(group: Group, start: Start) -> Any:
        end = await work(group, start)
        ends.append(end)
        if len(ends) == 1:
            return Wrong("storage_failed", "database or disk is full", start.run, errno.ENOSPC)
        return end

    monkeypatch.setattr(Group, "work", full)
    gate = asyncio.Event()
    async with engine(script=holding(sent, 20, gate)) as stub, weft(stub) as gateway:
        begun = await begin(gateway.client, await created(gateway.client), rows=texts(20))
        run = await ended(gateway.client, begun["id"])
        assert (run["status"], run["error"]) == ("completed", None)
        assert len(await output(gateway.client, begun["id"])) == 20
    # The second process had the rows from the journal.
    assert (len(ends), len(sent)) == (2, 20)
