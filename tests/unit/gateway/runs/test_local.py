"""Runs in this process: windows of programs."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from support.planning import replica
from support.scripted_server import scripted
from weft_gateway.runs.caller import Server
from weft_gateway.runs.job import Job, Opened
from weft_gateway.runs.local import Options, run, speeds_of, windows_of
from weft_gateway.workflows.spec import load


def servers(*slots: int) -> list[Server]:
    return [Server(name, name, count) for name, count in zip("abc", slots, strict=False)]


def test_windows_are_a_quarter_more_than_the_slots() -> None:
    assert windows_of(servers(16, 2, 0), None) == {"a": 20, "b": 3, "c": 64}


def test_calls_in_flight_are_divided_among_programs() -> None:
    assert windows_of(servers(1, 1, 1), 8) == {"a": 2, "b": 3, "c": 3}
    assert windows_of(servers(1, 1, 1), 2) == {"a": 1, "b": 1}


def test_speeds_need_the_costs_of_all_replicas() -> None:
    known = [
        Server(one.name, one.name, one.slots, None, one.costs)
        for one in (replica("a", slow=4.0), replica("b"))
    ]
    assert speeds_of(known) == {"a": 0.25, "b": 1.0}
    assert speeds_of([*known, Server("c", "c", 32)]) == {}
    assert speeds_of([Server("run")]) == {}


@pytest.mark.anyio
async def test_a_cancelled_run_releases_its_journal(tmp_path: Path) -> None:
    answered = threading.Event()

    def answer(request: object) -> tuple[int, object]:
        answered.wait(20)
        return 503, {}

    file = tmp_path / "in.jsonl"
    file.write_text('{"q": "x"}\n')
    workflow = load(
        "{weft: 1, inputs: {q: str}, outputs: {a: a}, ops: {a: {llm: {user: '{{ q }}'}}}}"
    )
    job = Job(workflow, file, tmp_path / "out.jsonl")
    with scripted(answer) as server:
        task = asyncio.create_task(run(job, Opened(job, resume=False), Options(server.url)))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 20)
        answered.set()
    Opened(job, resume=True).journal.close()
