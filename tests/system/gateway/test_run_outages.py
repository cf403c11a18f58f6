"""`weft run` while its gateway, its input or its journal disappear."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.batches import served
from support.runs import ROWS, Answers, Runs
from weft_bench.stack.processes import free_port

pytestmark = [pytest.mark.system, pytest.mark.anyio]


async def test_a_killed_gateway_fails_no_row(engine: Any, tmp_path: Path, until: Any) -> None:
    answers = Answers()
    port = free_port()
    folder = tmp_path / "data"
    async with engine(script=answers) as stub:
        runs = Runs(tmp_path, f"http://127.0.0.1:{port}")
        async with served(port, stub.url, folder):
            process = await runs.start("out.jsonl")
            answers.after = (2 * ROWS, answers.hold.clear)
            await until(lambda: answers.count >= 2 * ROWS, "half of the calls are made")
        answers.hold.set()
        async with served(port, stub.url, folder):
            _, errors = await process.communicate()
    assert process.returncode == 0, errors
    assert b"the run waits" in errors
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["row"] for row in rows] == list(range(ROWS))
    assert all(row["error"] is None for row in rows)


@pytest.mark.parametrize("change", ["emptied", "replaced", "deleted"])
async def test_a_changed_input_is_an_error(
    change: str, engine: Any, weft: Any, tmp_path: Path, until: Any
) -> None:
    answers = Answers()
    async with engine(script=answers) as stub, weft(stub) as gateway:
        runs = Runs(tmp_path, gateway.url)
        good = (tmp_path / "in.jsonl").read_bytes()
        answers.after = (10, answers.hold.clear)
        process = await runs.start("out.jsonl")
        await until(lambda: answers.count >= 10, "calls are made")
        if change == "deleted":
            (tmp_path / "in.jsonl").unlink()
        else:
            text = "" if change == "emptied" else good.decode().replace("q1", "q2")
            (tmp_path / "in.jsonl").write_text(text)
        answers.hold.set()
        _, errors = await process.communicate()
        assert (process.returncode, b"in.jsonl: has changed during the run" in errors) == (2, True)
        assert not (tmp_path / "out.jsonl").exists()
        (tmp_path / "in.jsonl").write_bytes(good)
        assert (await runs.run("out.jsonl", "--resume"))[0] == 0
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == ROWS


async def test_a_journal_deleted_during_a_run_loses_no_row(
    engine: Any, weft: Any, tmp_path: Path, until: Any
) -> None:
    answers = Answers()
    async with engine(script=answers) as stub, weft(stub) as gateway:
        runs = Runs(tmp_path, gateway.url)
        answers.after = (10, answers.hold.clear)
        process = await runs.start("out.jsonl")
        await until(lambda: answers.count >= 10, "calls are made")
        status, text = await runs.run("out.jsonl")
        assert (status, "another process runs this" in text) == (2, True)
        (tmp_path / "out.jsonl.journal").unlink()
        answers.hold.set()
        assert await process.wait() == 0
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == ROWS
