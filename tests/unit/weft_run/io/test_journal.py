"""The journal: durable results, transactions of many records, locks and resumption."""

from __future__ import annotations

import asyncio
import errno
import sqlite3
from pathlib import Path

import pytest
from support.waiting import DEADLINE_S
from weft_run.io import journal as journal_module
from weft_run.io.journal import (
    ENDINGS,
    SHARED,
    DiskError,
    Journal,
    JournalError,
    JournalLocked,
    Record,
    RowEnd,
    State,
)

pytestmark = pytest.mark.anyio

ABOUT = {"workflow": "w1", "input": "i1"}


def opened(folder: Path, *, resume: bool = False, **about: str) -> Journal:
    return Journal(folder / "out.journal", ABOUT | about, program="run-1", resume=resume)


async def test_results_survive_a_restart(tmp_path):
    journal = opened(tmp_path)
    assert not journal.begun
    await journal.write(Record(3, "facts[0]", State.DONE, "text", 7))
    await journal.write(Record(SHARED, "abc", State.DONE, {"a": [1]}, 5))
    await journal.write(Record(4, "post", State.INTENT))
    assert journal.begun
    journal.close()
    journal = opened(tmp_path, resume=True)
    assert journal.program == "run-1"
    found = journal.find(3, "facts[0]")
    assert found is not None
    assert (found.state, found.value) == (State.DONE, "text")
    assert journal.find(SHARED, "abc").value == {"a": [1]}
    assert journal.find(4, "post").state is State.INTENT
    assert journal.find(4, "facts[0]") is None
    assert journal.counts() == (0, 0, 12, 0)
    journal.close()


async def test_rows_are_in_order_and_their_results_are_deleted(tmp_path):
    journal = opened(tmp_path)
    await journal.write(Record(2, "a", State.DONE, "x"))
    await journal.write(RowEnd(2, False, {"row": 2}))
    await journal.write(RowEnd(0, True, {"row": 0}))
    assert journal.find(2, "a") is None
    assert journal.finished(2)
    assert not journal.finished(1)
    assert list(journal.rows()) == [{"row": 0}, {"row": 2}]
    assert journal.counts() == (2, 1, 0, 0)
    journal.close(delete=True)
    assert list(tmp_path.iterdir()) == []


async def test_concurrent_writes_share_transactions(tmp_path):
    journal = opened(tmp_path)
    commits = 0

    def count(statement: str) -> None:
        nonlocal commits
        commits += statement == "COMMIT"

    journal._connection.set_trace_callback(count)
    writes = [journal.write(Record(n, "a", State.DONE, n)) for n in range(300)]
    await asyncio.gather(*writes)
    assert commits < 100
    assert journal.find(299, "a").value == 299
    journal.close()


async def test_large_writes_have_separate_transactions(tmp_path, monkeypatch):
    monkeypatch.setattr(journal_module, "_MOST_BYTES", 1000)
    journal = opened(tmp_path)
    commits: list[str] = []
    journal._connection.set_trace_callback(
        lambda statement: commits.append(statement) if statement == "COMMIT" else None
    )
    writes = [journal.write(Record(n, "a", State.DONE, "x" * 1000)) for n in range(20)]
    await asyncio.gather(*writes)
    assert len(commits) == 20
    journal.close()


async def test_an_error_of_the_writer_reaches_the_run(tmp_path):
    journal = opened(tmp_path)
    with pytest.raises(JournalError, match=r"out\.journal: .*too large"):
        async with asyncio.timeout(DEADLINE_S):
            await journal.write(Record(0, "a", State.DONE, "x", 1 << 70))
    await journal.write(Record(0, "a", State.DONE, "y", 1))
    assert journal.find(0, "a").value == "y"
    journal.close()


async def test_a_journal_that_runs_is_not_said_to_be_interrupted(tmp_path):
    journal = opened(tmp_path)
    for resume in (False, True):
        with pytest.raises(JournalLocked, match="another process runs this"):
            opened(tmp_path, resume=resume)
    journal.close(delete=True)
    with pytest.raises(JournalError, match="no journal to resume"):
        opened(tmp_path, resume=True)
    assert list(tmp_path.iterdir()) == []


async def test_a_deleted_journal_still_gives_its_rows(tmp_path):
    journal = opened(tmp_path)
    await journal.write(RowEnd(0, False, {"row": 0}))
    journal.path.unlink()
    await journal.write(RowEnd(1, False, {"row": 1}))
    assert list(journal.rows()) == [{"row": 0}, {"row": 1}]
    journal.close(delete=True)


async def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(JournalError, match=r"missing/out\.journal: No such file"):
        opened(tmp_path / "missing")


async def test_only_the_same_work_can_be_resumed(tmp_path):
    with pytest.raises(JournalError, match="no journal to resume"):
        opened(tmp_path, resume=True)
    opened(tmp_path).close()
    with pytest.raises(JournalError, match="continue it with --resume"):
        opened(tmp_path)
    with pytest.raises(JournalError, match="the input has changed"):
        opened(tmp_path, resume=True, input="i2")
    journal = opened(tmp_path, resume=True)
    journal.pin("model", "a")
    journal.pin("model", "a")
    with pytest.raises(JournalError, match="the model has changed"):
        journal.pin("model", "b")
    journal.close()


async def test_two_processes_cannot_use_one_journal(tmp_path):
    journal = opened(tmp_path)
    with pytest.raises(JournalError, match="another process"):
        opened(tmp_path, resume=True)
    journal.close()


async def test_a_file_that_is_no_journal_is_an_error(tmp_path):
    (tmp_path / "out.journal").write_text("no database " * 100)
    with pytest.raises(JournalError, match="not a database"):
        opened(tmp_path, resume=True)


async def test_an_error_of_the_file_reaches_the_writer(tmp_path):
    journal = opened(tmp_path)
    await journal.write(Record(0, "a", State.DONE, 1))
    other = sqlite3.connect(tmp_path / "out.journal")
    other.execute("DROP TABLE results")
    with pytest.raises(JournalError, match="no such table"):
        await journal.write(Record(1, "a", State.DONE, 1))
    other.close()
    journal.close()


@pytest.mark.parametrize("beyond", [0, 4096])
async def test_a_damaged_journal_says_what_to_do(tmp_path, beyond):
    journal = opened(tmp_path)
    await asyncio.gather(*(journal.write(RowEnd(n, False, {"row": n})) for n in range(200)))
    journal.close()
    file = tmp_path / "out.journal"
    with file.open("r+b") as raw:
        raw.seek(beyond)
        raw.write(b"\xff" * (file.stat().st_size - beyond))
    with pytest.raises(
        JournalError, match=r"out\.journal: the journal is damaged .* start a new run"
    ):
        opened(tmp_path, resume=True).counts()


async def test_each_read_reports_damage(tmp_path):
    journal = opened(tmp_path)
    await journal.write(RowEnd(0, False, {"row": 0}))
    await journal.write(Record(1, "a", State.DONE, "x"))
    for table, column in (("rows", "line"), ("results", "value")):
        journal._reader.execute(f"UPDATE {table} SET {column} = x'ff'")
    journal._reader.commit()
    with pytest.raises(JournalError, match="is damaged"):
        list(journal.rows())
    with pytest.raises(JournalError, match="is damaged"):
        journal.find(1, "a")
    journal.close()


async def test_a_full_disk_is_an_error_of_its_kind(tmp_path):
    journal = opened(tmp_path)
    journal._connection.execute("PRAGMA max_page_count = 12")
    with pytest.raises(DiskError, match="is full; free space") as found:
        await asyncio.gather(
            *(journal.write(Record(n, "a", State.DONE, "x" * 2000)) for n in range(50))
        )
    assert found.value.errno == errno.ENOSPC
    journal.close()


async def test_only_the_owner_can_read_a_journal(tmp_path):
    journal = opened(tmp_path)
    await journal.write(Record(0, "a", State.DONE, "private"))
    modes = {file.name: file.stat().st_mode & 0o777 for file in tmp_path.iterdir()}
    assert set(modes.values()) == {0o600}
    assert len(modes) == len(ENDINGS)
    journal.close()
