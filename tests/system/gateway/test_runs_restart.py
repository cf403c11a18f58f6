"""A gateway is killed during a run, and the next one finishes it."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.batches import served
from support.http_runs import begin, chat, ended, headers_of, output, texts
from support.stack import free_port
from support.waiting import RUN_S

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
ROWS = 40


@contextlib.asynccontextmanager
async def addressed(engine: Any, script: Any) -> AsyncIterator[tuple[int, str, httpx.AsyncClient]]:
    """Yield a port for a gateway, the URL of an engine with this script, and a client."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    async with (
        engine(script=script) as stub,
        httpx.AsyncClient(base_url=url, timeout=RUN_S, trust_env=False) as client,
    ):
        yield port, stub.url, client


def is_second(prompt: str) -> bool:
    return prompt.startswith("again")


class Holding:
    """An engine's script. Prompts of which `holds` is true wait for the gate."""

    def __init__(self, holds: Callable[[str], bool]) -> None:
        self.holds = holds
        self.gate = asyncio.Event()
        self.sent: list[str] = []
        self.open: Counter[str] = Counter()

    async def __call__(self, wire: Any, request: Any) -> None:
        prompt = request.json["messages"][0]["content"]
        self.sent.append(prompt)
        self.open[prompt] += 1
        if self.holds(prompt):
            await self.gate.wait()
        with contextlib.suppress(ConnectionError):
            await chat(wire, request)
            self.open[prompt] -= 1

    def repeated(self) -> set[str]:
        """Return the prompts that were sent more than once."""
        return {prompt for prompt, count in Counter(self.sent).items() if count > 1}


async def test_a_killed_gateway_continues_its_runs(tmp_path: Path, engine: Any, until: Any) -> None:
    script, folder = Holding(is_second), tmp_path / "data"
    async with addressed(engine, script) as (port, stub, client):
        async with served(port, stub, folder) as process:
            begun = await begin(client, TWO_STEPS, rows=texts(ROWS))
            # A row's first answer is durable before its second call is sent.
            await until(lambda: len(script.sent) == 2 * ROWS)
            children = child_processes(process.pid)
            process.kill()
            await process.wait()
            # The process of the run dies with the gateway.
            await until(lambda: not any(map(is_alive, children)))
        assert len(children) == 1
        in_flight = set(+script.open)
        script.gate.set()
        async with served(port, stub, folder):
            run = await ended(client, begun["id"])
            assert run["status"] == "completed", run
            assert run["row_counts"] == {"total": ROWS, "completed": ROWS, "failed": 0}
            rows = await output(client, begun["id"])
    assert rows == [
        {"row": n, "second": f"re: again re: text {n}", "error": None} for n in range(ROWS)
    ]
    assert len(set(script.sent)) == 2 * ROWS
    # Only the calls in flight were made twice.
    assert script.repeated() <= in_flight


async def test_joined_runs_continue_each(tmp_path: Path, engine: Any, until: Any) -> None:
    script, folder = Holding(is_second), tmp_path / "data"
    async with addressed(engine, script) as (port, stub, client):
        async with served(port, stub, folder) as process:
            options: Any = {"rows": texts(8), "batch_ms": 1_500}
            runs = [await begin(client, TWO_STEPS, **options) for _ in range(2)]
            await until(lambda: len(script.sent) == 16)
            # The runs have equal rows, so each call was made once.
            assert len(set(script.sent)) == 16
            process.kill()
            await process.wait()
        in_flight = set(+script.open)
        script.gate.set()
        async with served(port, stub, folder):
            for begun in runs:
                run = await ended(client, begun["id"])
                assert run["status"] == "completed", run
                assert await output(client, begun["id"]) == [
                    {"row": n, "second": f"re: again re: text {n}", "error": None} for n in range(8)
                ]
    assert script.repeated() <= in_flight


async def test_a_cancelled_run_ends_after_a_restart(
    tmp_path: Path, engine: Any, until: Any
) -> None:
    script, folder = Holding(lambda prompt: prompt >= "text 5"), tmp_path / "data"
    async with addressed(engine, script) as (port, stub, client):
        async with served(port, stub, folder) as process:
            begun = await begin(client, rows=texts(10))
            await until(lambda: len(script.sent) == 10)
            path = f"/v1/runs/{begun['id']}/cancel"
            await client.post(path, headers=headers_of("sk-a"))
            process.kill()
            await process.wait()
        async with served(port, stub, folder):
            run = await ended(client, begun["id"])
            assert run["status"] == "cancelled"
            rows = await output(client, begun["id"])
    assert all(row["error"] is None for row in rows)
    assert len(rows) <= 5
    assert len(script.sent) == 10


def child_processes(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_alive(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
