"""A run in the process of runs: its disk, and what it reports."""

from __future__ import annotations

import errno
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from weft_gateway.runs.flow_rules import Rules
from weft_gateway.runs.flow_wire import INPUT, OUTPUT, WORKFLOW, FromWorker, Over, Start, Wrong
from weft_gateway.runs.flow_worker import FlowRun, Shared
from weft_run.io.journal import Journal

pytestmark = pytest.mark.anyio

ROWS = 200
TEXT = """
weft: 1
name: long
inputs: {x: int}
ops:
  a: {format: "{{ x }}{{ 'a' * 2000 }}"}
outputs: {a: a}
"""


class Scene:
    """A run in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sent: list[FromWorker] = []
        (folder / WORKFLOW).write_text(TEXT)
        rows = "".join(json.dumps({"x": number}) + "\n" for number in range(ROWS))
        (folder / INPUT).write_text(rows)

    async def run(self, **options: Any) -> FromWorker:
        """Run to the end, and return the last message."""
        start = Start(
            run="run-1", folder=str(self.folder), file="w.yaml", input="my.jsonl",
            rules=Rules(), model="", calls=4, tokens=None, errors=None, most_rows=ROWS,
            most_bytes=1 << 20, storage=1 << 30, finish=False,
        )  # fmt: skip
        for name, value in options.items():
            setattr(start, name, value)
        return await FlowRun(start, self.sent.append, Shared(start, self.sent.append)).run()

    @property
    def output(self) -> list[Any]:
        return [json.loads(line) for line in (self.folder / OUTPUT).read_text().splitlines()]


async def test_a_run_continues_after_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(tmp_path)
    connect = Journal._open

    def full(journal: Journal) -> sqlite3.Connection:
        connection = connect(journal)
        connection.execute("PRAGMA max_page_count = 40")
        return connection

    with monkeypatch.context() as patched:
        patched.setattr(Journal, "_open", full)
        end = await scene.run()
    assert isinstance(end, Wrong)
    assert (end.code, end.errno) == ("storage_failed", errno.ENOSPC)
    assert "database or disk is full" in end.message
    assert await scene.run() == Over("run-1", "done")
    assert [row["row"] for row in scene.output] == list(range(ROWS))


async def test_a_full_disk_at_the_beginning_leaves_no_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr("weft_run.io.journal._SCHEMA", "PRAGMA max_page_count = 1;"
                        "CREATE TABLE about (name TEXT, value TEXT);")  # fmt: skip
        end = await scene.run()
    assert isinstance(end, Wrong)
    assert end.errno == errno.ENOSPC
    assert await scene.run() == Over("run-1", "done")


async def test_a_full_disk_at_the_end_keeps_the_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(tmp_path)

    def full(*_: Any) -> None:
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    with monkeypatch.context() as patched:
        patched.setattr("weft_run.io.rows.os.fsync", full)
        end = await scene.run()
    assert isinstance(end, Wrong)
    assert end.errno == errno.EDQUOT
    assert await scene.run(finish=True) == Over("run-1", "cancelled")
    assert len(scene.output) == ROWS


async def test_a_damaged_journal_is_an_error_of_the_run(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    assert await scene.run() == Over("run-1", "done")
    journal = tmp_path / f"{OUTPUT}.journal"
    with journal.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (journal.stat().st_size - 4096))
    end = await scene.run()
    assert isinstance(end, Wrong)
    assert (end.code, end.errno) == ("storage_failed", 0)
    assert "output.jsonl.journal: the journal is damaged" in end.message


async def test_a_run_stops_at_the_limit_of_storage(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    most = 200_000
    assert await scene.run(storage=most) == Over("run-1", "storage")
    files = (tmp_path / OUTPUT, tmp_path / f"{OUTPUT}.journal")
    for _ in range(2):
        assert most * 0.8 < sum(file.stat().st_size for file in files) < most * 1.1
        rows = [row["row"] for row in scene.output]
        assert 0 < len(rows) < ROWS
        assert rows == list(range(len(rows)))
        # A run that continues has no more storage than before.
        assert await scene.run(storage=most) == Over("run-1", "storage")


async def test_a_run_whose_results_fit_completes(tmp_path: Path) -> None:
    assert await Scene(tmp_path).run(storage=2_000_000) == Over("run-1", "done")


async def test_rows_in_progress_stop_at_the_limit_of_storage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(tmp_path)
    (tmp_path / WORKFLOW).write_text(TEXT.replace("{format:", "{llm: {user: a}}\n  b: {format:"))
    sizes = iter([0] * 20)
    # The calls have no answer, so that only a stop ends the run.
    monkeypatch.setattr(Journal, "size", lambda _: next(sizes, 1 << 31))
    assert await scene.run(storage=1 << 30) == Over("run-1", "storage")
    assert scene.output == []


async def test_errors_of_the_input_have_the_name_of_its_file(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    (tmp_path / INPUT).write_text('{"x": 1}\n{"x": "a"}\n')
    end = await scene.run()
    assert end == Wrong(
        "invalid_input", "my.jsonl:2: input 'x' must be of type int, is str", "run-1"
    )
