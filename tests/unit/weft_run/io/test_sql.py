"""Queries that take long or have large values: they fail their row, and delay no other thing."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.waiting import DEADLINE_S
from weft_run.io.errors import CallFailed
from weft_run.io.sql import MAX_VALUE_BYTES, Connection, Found
from weft_run.io.tools import Tools
from weft_run.language.requests import SqlRequest

pytestmark = pytest.mark.anyio

_TOO_LARGE = f"a value or row has more than {MAX_VALUE_BYTES} bytes"


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "shop.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE text (name TEXT, body TEXT, more TEXT)")
    large, half = "x" * (MAX_VALUE_BYTES + 1), "x" * (MAX_VALUE_BYTES * 2 // 3)
    rows = [("large", large, ""), ("wide", half, half)]
    connection.executemany("INSERT INTO text VALUES (?, ?, ?)", rows)
    connection.commit()
    connection.close()
    return path


class Slow:
    """An operation of SQLite that does not stop."""

    def __init__(self) -> None:
        self.stops = threading.Event()
        self.runs = threading.Event()
        self.threads: list[threading.Thread] = []

    def query(self, connection: Connection, request: SqlRequest) -> Found:
        self.threads.append(threading.current_thread())
        self.runs.set()
        self.stops.wait()
        return Found([{"n": 1}], True)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Slow]:
    slow = Slow()
    monkeypatch.setattr(Connection, "query", lambda *given: slow.query(*given))
    yield slow
    slow.stops.set()
    for thread in slow.threads:
        thread.join()


def sql(query: str, write: bool = False, **parameters: Any) -> SqlRequest:
    return SqlRequest("shop", query, parameters, write)


async def test_the_time_of_a_read_has_a_limit_within_an_operation(
    database: Path, slow: Slow
) -> None:
    tools = Tools(connections={"shop": database}, timeout_s=0.05)
    with pytest.raises(CallFailed, match=r"no result within 0\.05 s"):
        await tools.run(sql("SELECT 1 AS n"), 1)
    await tools.aclose()
    assert [thread.daemon for thread in slow.threads] == [True]


async def test_a_run_that_ends_does_not_wait_for_a_read(database: Path, slow: Slow) -> None:
    tools = Tools(connections={"shop": database})
    query = asyncio.create_task(tools.run(sql("SELECT 1 AS n"), 1))
    await asyncio.to_thread(slow.runs.wait)
    query.cancel()
    await asyncio.wait([query])
    await tools.aclose()
    assert query.cancelled()
    assert not slow.stops.is_set()


async def test_a_run_that_ends_waits_for_a_write(database: Path, slow: Slow) -> None:
    tools = Tools(connections={"shop": database}, timeout_s=0.05)
    query = asyncio.create_task(tools.run(sql("DELETE FROM text", True), 1))
    await asyncio.to_thread(slow.runs.wait)
    closing = asyncio.create_task(tools.aclose())
    await asyncio.sleep(0.1)
    assert not closing.done()
    slow.stops.set()
    await closing
    assert (await query).value == [{"n": 1}]


async def test_a_query_that_is_not_needed_ends(database: Path) -> None:
    """A cancelled query frees the only thread."""
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT sum(i) FROM n"
    tools = Tools(connections={"shop": database}, threads=1)
    query = asyncio.create_task(tools.run(sql(endless), 1))
    await asyncio.sleep(0.1)
    query.cancel()
    async with asyncio.timeout(DEADLINE_S):
        assert (await tools.run(sql("SELECT 1 AS n"), 1)).value == [{"n": 1}]
    await tools.aclose()


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT body FROM text WHERE name = 'large'", _TOO_LARGE),
        ("SELECT substr(body, 1, 9) FROM text WHERE name = 'large'", _TOO_LARGE),
        ("SELECT :body AS body", _TOO_LARGE),
        ("SELECT body || more FROM text WHERE name = 'wide'", _TOO_LARGE),
        ("SELECT name FROM text WHERE name LIKE :body", "pattern too complex"),
        (f"SELECT '{'x' * MAX_VALUE_BYTES}'", "query string is too large"),
    ],
)
async def test_a_large_value_fails_its_row(database: Path, query: str, message: str) -> None:
    tools = Tools(connections={"shop": database})
    body = "x" * (2_000 if "LIKE" in query else MAX_VALUE_BYTES + 1)
    with pytest.raises(CallFailed, match=message):
        await tools.run(sql(query, body=body), 1)
    # Other columns and rows are readable.
    found = await tools.run(sql("SELECT name, length(more) AS n FROM text"), 1)
    assert found.value == [{"name": "large", "n": 0}, {"name": "wide", "n": 699_050}]
    wide = await tools.run(sql("SELECT body, more FROM text WHERE name = 'wide'"), 1)
    assert len(wide.value[0]["body"]) == len(wide.value[0]["more"]) == 699_050
    await tools.aclose()


async def test_a_query_without_memory_fails_its_row(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Found:
        raise MemoryError

    monkeypatch.setattr(Connection, "_query", fail)
    tools = Tools(connections={"shop": database})
    with pytest.raises(CallFailed, match="needs too much memory"):
        await tools.run(sql("SELECT 1 AS n"), 1)
    await tools.aclose()
