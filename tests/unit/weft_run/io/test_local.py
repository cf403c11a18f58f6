"""Runs in this process: windows of programs, their files and the prompt cache."""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from support.planning import replica
from support.scripted_server import scripted
from support.waiting import DEADLINE_S
from weft_run.io.caller import Server
from weft_run.io.errors import JobError
from weft_run.io.job import Job, Opened
from weft_run.io.journal import JournalLocked
from weft_run.io.local import Options, run, speeds_of, windows_of
from weft_run.io.rows import RowsError
from weft_run.language.spec import load

WORKFLOW = (
    "{weft: 1, model: m, inputs: {q: str}, outputs: {a: a}, ops: {a: {llm: {user: '{{ q }}'}}}}"
)


def job_of(folder: Path, output: Path) -> Job:
    (folder / "in.jsonl").write_text('{"q": "x"}\n{"q": "y"}\n')
    (folder / "wf.yaml").write_text(WORKFLOW)
    return Job(load(WORKFLOW, str(folder / "wf.yaml")), folder / "in.jsonl", output)


def replied(request: object) -> tuple[int, object]:
    message = {"role": "assistant", "content": "text"}
    usage = {"prompt_tokens": 5, "completion_tokens": 3}
    return 200, {"choices": [{"message": message}], "usage": usage}


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
        answered.wait(DEADLINE_S)
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
            await asyncio.wait_for(task, DEADLINE_S)
        answered.set()
    Opened(job, resume=True).journal.close()


def names(folder: Path) -> set[str]:
    return {one.name for one in folder.iterdir()}


@pytest.mark.anyio
async def test_answers_of_the_prompt_cache_use_no_budget(tmp_path: Path) -> None:
    job = replace(job_of(tmp_path, tmp_path / "out.jsonl"), prompt_cache=tmp_path / "answers")
    with scripted(replied) as server:
        options = Options(server.url, tokens=1)
        # A call that is not in the cache still needs a budget.
        ended = await run(job, Opened(job, resume=False), options)
        assert (ended.outcome.reason, ended.outcome.rows) == ("tokens", 0)
        ended = await run(job, Opened(job, resume=True), Options(server.url))
        assert ended.outcome == ("done", 2, 0, 0)
        ended = await run(job, Opened(job, resume=False), options)
        assert (ended.outcome, ended.tokens) == (("done", 2, 0, 0), 0)
        assert len(server.to("POST", "/v1/chat/completions")) == 2


@pytest.mark.anyio
async def test_answers_in_the_journal_use_no_budget(tmp_path: Path) -> None:
    job = replace(
        job_of(tmp_path, tmp_path / "out.jsonl"),
        workflow=load(
            "{weft: 1, model: m, inputs: {q: str}, outputs: {b: b}, ops: {"
            "a: {llm: {user: '{{ q }}', max_tokens: 5}},"
            "b: {llm: {user: 'b{{ a }}', max_tokens: 1}}}}"
        ),
    )
    with scripted(replied) as server:
        # Two calls of `a` reserve 13 tokens each and use 8. The call of `b`, which both rows share,
        # reserves 11.
        ended = await run(job, Opened(job, resume=False), Options(server.url, tokens=26))
        assert (ended.outcome.reason, ended.outcome.rows, ended.tokens) == ("tokens", 0, 16)
        ended = await run(job, Opened(job, resume=True), Options(server.url, tokens=28))
        assert (ended.outcome.reason, ended.outcome.rows, ended.tokens) == ("done", 2, 24)
        assert len(server.to("POST", "/v1/chat/completions")) == 3


@pytest.mark.parametrize(
    "name",
    [
        "in.jsonl", "wf.yaml", "shop.db", "shop.db-wal", "out.jsonl", "out.jsonl.partial",
        "out.jsonl.journal", "out.jsonl.journal-lock", "out.jsonl.journal-wal",
        "out.jsonl.journal-shm",
    ],
)  # fmt: skip
def test_the_prompt_cache_is_no_file_of_the_run(tmp_path: Path, name: str) -> None:
    job = job_of(tmp_path, tmp_path / "out.jsonl")
    job = replace(job, connections={"shop": tmp_path / "shop.db"})
    # An empty file could become a cache.
    job.input.write_text("")
    (tmp_path / "link").symlink_to(tmp_path / name)
    (tmp_path / "folder").mkdir()
    paths = [tmp_path / name, tmp_path / "link", tmp_path / "folder" / ".." / name]
    if (tmp_path / name).exists():
        (tmp_path / "hard").hardlink_to(tmp_path / name)
        paths.append(tmp_path / "hard")
    before = names(tmp_path)
    for path in paths:
        with pytest.raises(JobError, match=f"^{path}: is a file of this run"):
            Opened(replace(job, prompt_cache=path), resume=False)
    # It is refused before there is a journal.
    assert names(tmp_path) == before


def test_links_that_lead_to_themselves_are_errors(tmp_path: Path) -> None:
    job = job_of(tmp_path, tmp_path / "out.jsonl")
    loop = tmp_path / "loop.jsonl"
    loop.symlink_to(loop)
    before = names(tmp_path)
    with pytest.raises(JobError, match=f"^{loop}: cannot be used as a prompt cache: Too many"):
        Opened(replace(job, prompt_cache=loop), resume=False)
    with pytest.raises(RowsError, match=f"^{loop}: is a link that leads to itself"):
        Opened(replace(job, output=loop), resume=False)
    assert names(tmp_path) == before


@pytest.mark.anyio
async def test_an_output_that_is_a_link_stays_one(tmp_path: Path) -> None:
    target, link = tmp_path / "results" / "out.jsonl", tmp_path / "link.jsonl"
    target.parent.mkdir()
    link.symlink_to(target)
    job = job_of(tmp_path, link)
    opened = Opened(job, resume=False)
    with pytest.raises(JournalLocked):
        Opened(job_of(tmp_path, target), resume=False)
    with scripted(replied) as server:
        ended = await run(job, opened, Options(server.url))
    assert ended.outcome.reason == "done"
    assert link.is_symlink()
    assert [json.loads(line)["a"] for line in target.read_text().splitlines()] == ["text"] * 2
    assert names(tmp_path) == {"in.jsonl", "wf.yaml", "results", "link.jsonl"}
    assert names(target.parent) == {"out.jsonl"}
