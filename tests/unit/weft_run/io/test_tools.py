"""Tools: functions, SQL on real databases, and HTTP with allowed hosts."""

from __future__ import annotations

import asyncio
import re
import sqlite3
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from support.scripted_server import scripted
from support.waiting import DEADLINE_S
from weft_run.io.errors import CallFailed
from weft_run.io.sql import MAX_ROWS
from weft_run.io.tools import Result, Tools
from weft_run.language.requests import HttpRequest, PythonRequest, SqlRequest

pytestmark = pytest.mark.anyio

_COUNTED = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n LIMIT"


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE item (name TEXT, price INT)")
        connection.executemany("INSERT INTO item VALUES (?, ?)", [("pen", 2), ("book", 9)])
    connection.close()
    return path


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft_run.io.tools.pause", lambda *_: 0.0)


async def ran(request: Any, attempts: int = 1, **options: Any) -> Result:
    tools = Tools(**options)
    try:
        return await tools.run(request, attempts)
    finally:
        await tools.aclose()


async def failure(request: Any, attempts: int = 1, **options: Any) -> Any:
    with pytest.raises(CallFailed) as error:
        await ran(request, attempts, **options)
    return error.value.failure


def sql(query: str, write: bool = False, **parameters: Any) -> SqlRequest:
    return SqlRequest("shop", query, parameters, write)


async def test_queries_return_rows(database: Path) -> None:
    query = sql("SELECT name, price FROM item WHERE price > :least", least=5)
    found = await ran(query, connections={"shop": database})
    assert found == Result([{"name": "book", "price": 9}])


@pytest.mark.parametrize(
    "query",
    [
        "DELETE FROM item",
        "INSERT INTO item VALUES ('x', 1)",
        "DROP TABLE item",
        "ATTACH 'other.db' AS other",
        "PRAGMA writable_schema = 1",
        "WITH x AS (SELECT 1) UPDATE item SET price = 0",
        "SELECT load_extension('x')",
        "CREATE TEMP TABLE t (a)",
    ],
)
async def test_reads_change_nothing(database: Path, query: str) -> None:
    found = await failure(sql(query), 3, connections={"shop": database})
    assert (found.code, found.attempts) == ("sql", 1)
    rows = await ran(sql("SELECT count(*) AS n FROM item"), connections={"shop": database})
    assert rows.value == [{"n": 2}]
    assert not (database.parent / "other.db").exists()


async def test_writes_are_possible_where_they_are_declared(database: Path) -> None:
    tools = Tools(connections={"shop": database})
    assert (await tools.run(sql("UPDATE item SET price = 1", True), 1)).value == []
    found = await tools.run(sql("SELECT sum(price) AS s FROM item"), 1)
    assert found.value == [{"s": 2}]
    with pytest.raises(CallFailed, match="ATTACH"):
        await tools.run(sql("ATTACH 'other.db' AS other", True), 1)
    await tools.aclose()


@pytest.mark.parametrize(
    ("query", "repeatable"),
    [
        ("SELECT 1 AS n", True),
        ("SELECT random() AS n", False),
        ("SELECT datetime('now') AS n", False),
        ("SELECT CURRENT_TIMESTAMP AS n", False),
    ],
)
async def test_values_of_the_time_are_recognised_each_time(
    database: Path, query: str, repeatable: bool
) -> None:
    tools = Tools(connections={"shop": database}, threads=1)
    found = [(await tools.run(sql(query), 1)).repeatable for _ in range(2)]
    assert found == [repeatable] * 2
    await tools.aclose()


async def test_no_column_is_lost(database: Path) -> None:
    options: dict[str, Any] = {"connections": {"shop": database}}
    found = await failure(sql("SELECT a.*, b.* FROM item a, item b"), 3, **options)
    expected = "two columns are named 'name'; name them with AS"
    assert found == ("sql", expected, 1)
    assert (await ran(sql("SELECT 1 AS id, 2 AS ID"), **options)).value == [{"id": 1, "ID": 2}]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT length(hex(zeroblob(400000000)))", "a value or row has more than 1048576 bytes"),
        (f"SELECT hex(zeroblob(1000)) FROM ({_COUNTED} 9000)", "the result has more than 16777216"),
        (f"SELECT i AS {'n' * 50_000} FROM ({_COUNTED} 400)", "the result has more than 16777216"),
        (f"SELECT {', '.join(f'i AS a{n}' for n in range(1000))} FROM ({_COUNTED} 2000)", "the r"),
    ],
)
async def test_large_values_are_errors(database: Path, query: str, message: str) -> None:
    found = await failure(sql(query), 3, connections={"shop": database})
    assert (found.code, found.attempts) == ("sql", 1)
    assert found.message.startswith(message)


async def test_errors_of_queries_have_a_reason(database: Path) -> None:
    options: dict[str, Any] = {"connections": {"shop": database}}
    assert "no such table" in (await failure(sql("SELECT * FROM none"), **options)).message
    assert "configured: shop" in (await failure(SqlRequest("none", "SELECT 1"), **options)).message
    many = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n"
    assert f"more than {MAX_ROWS} rows" in (await failure(sql(many), **options)).message
    endless = await failure(sql(f"SELECT count(*) FROM ({many})"), **options, timeout_s=0.05)
    assert "no result within" in endless.message


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELECT 1; SELECT 2", "one statement"),
        ("SELECT :x", "x"),
        ("SELECT ?", "no name"),
        ("SELECT CAST(x'ff' AS TEXT)", "decode"),
    ],
)
async def test_errors_that_sqlite_does_not_report_fail_a_row(
    database: Path, query: str, reason: str
) -> None:
    failed = await failure(sql(query), connections={"shop": database})
    assert (failed.code, reason in failed.message) == ("sql", True), failed


async def test_a_file_that_is_no_database_fails_a_row(tmp_path: Path) -> None:
    file = tmp_path / "text.db"
    file.write_text("no database" * 100)
    failed = await failure(sql("SELECT * FROM item"), connections={"shop": file})
    assert (failed.code, failed.message) == ("sql", "file is not a database")


@pytest.fixture
def functions(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("my_ops")
    monkeypatch.setitem(sys.modules, "my_ops", module)
    return module


async def test_functions_run_with_copies_of_their_arguments(functions: Any) -> None:
    functions.add = lambda items, more: items.append(more) or items
    items = ["a"]
    found = await ran(PythonRequest("my_ops:add", (items,), {"more": "b"}))
    assert (found.value, items) == (["a", "b"], ["a"])

    async def later(text: str) -> str:
        return text.upper()

    functions.later = later
    assert (await ran(PythonRequest("my_ops:later", ("x",)))).value == "X"


async def test_errors_of_functions_have_a_reason(functions: Any) -> None:
    functions.bad = lambda: 1 / 0
    functions.strange = lambda: {1, 2}
    functions.leave = lambda: sys.exit(3)

    async def leave_later() -> None:
        sys.exit(0)

    functions.leave_later = leave_later
    functions.stop = lambda: next(iter(()))

    def close() -> None:
        raise GeneratorExit

    functions.close = close
    for name, kind in (("stop", "StopIteration"), ("close", "GeneratorExit")):
        found = await failure(PythonRequest(f"my_ops:{name}"))
        assert (found.code, found.message) == ("python", f"RuntimeError: {kind}: ")
    for name, status in (("leave", 3), ("leave_later", 0)):
        found = await failure(PythonRequest(f"my_ops:{name}"), 3)
        assert found == ("python", f"SystemExit: {status}", 1)
    found = await failure(PythonRequest("my_ops:bad"), 3)
    assert found == ("python", "ZeroDivisionError: division by zero", 1)
    assert (await failure(PythonRequest("my_ops:strange"))).code == "not_json"
    assert (await failure(PythonRequest("my_ops:none"))).code == "not_found"
    assert (await failure(PythonRequest("my_ops:bad"), python=False)).code == "not_allowed"


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        ("json:dmups", "has no attribute 'dmups'; did you mean dumps?"),
        ("jsno:dumps", "No module named 'jsno'; did you mean json?"),
    ],
)
def test_a_missing_function_has_a_near_name(function: str, reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        Tools().load(function)


async def test_a_function_is_repeated_after_errors_that_may_pass(functions: Any) -> None:
    left = [2]

    def fetch() -> str:
        left[0] -= 1
        if left[0] >= 0:
            raise ConnectionError("away")
        return "here"

    functions.fetch = fetch
    assert (await ran(PythonRequest("my_ops:fetch"), 3)).value == "here"
    left[0] = 2
    assert (await failure(PythonRequest("my_ops:fetch"), 1)).attempts == 1


async def test_requests_reach_allowed_hosts_only() -> None:
    with scripted(lambda asked: (200, {"got": asked.json})) as server:
        host = server.url.removeprefix("http://")
        request = HttpRequest("POST", f"{server.url}/x", {"x-a": "1"}, {"n": 1})
        assert (await ran(request, hosts=[host])).value == {"got": {"n": 1}}
        assert server.asked[0].headers["x-a"] == "1"
        found = await failure(request, 3, hosts=["example.com"])
        assert (found.code, found.attempts) == ("not_allowed", 1)
        assert "allowed hosts: example.com" in found.message
        for url in ("file:///etc/passwd", "http://[", f"http://example.com@{host}/"):
            denied = await failure(HttpRequest("GET", url, {}, None), hosts=["example.com"])
            assert denied.code == "not_allowed"
        assert len(server.asked) == 1


async def test_an_address_with_a_port_allows_no_longer_address() -> None:
    """`[::1]:8000` is a host and its port; `[::1:8000]` is another host."""
    for url in ("http://[::1:8000]/", "http://[::1:8000]:22/", "http://[::1]/"):
        found = await failure(HttpRequest("GET", url, {}, None), hosts=["[::1]:8000"])
        assert found.code == "not_allowed"
    found = await failure(HttpRequest("GET", "http://[::1]:9/", {}, None), hosts=["[::1]:9"])
    assert found.code == "connection"


@pytest.mark.parametrize(
    ("headers", "body", "code"),
    [
        ({"x-a": "caf\u00e9"}, None, "invalid_request"),
        ({"x-a": "a\r\nhost: b"}, None, "connection"),
        ({}, {"n": 2**80}, "not_json"),
        ({}, {"n": "\ud800"}, "not_json"),
    ],
)
async def test_values_that_no_request_can_carry(headers: Any, body: Any, code: str) -> None:
    with scripted(lambda _: (200, {})) as server:
        host = server.url.removeprefix("http://")
        found = await failure(HttpRequest("POST", f"{server.url}/", headers, body), hosts=[host])
        assert found.code == code
        assert not server.asked


async def test_an_answer_that_comes_slowly_has_a_limit() -> None:
    ended = threading.Event()

    def pieces() -> Iterator[bytes]:
        while not ended.wait(0.05):
            yield b"x"

    with scripted(lambda _: pieces()) as server:
        host = server.url.removeprefix("http://")
        request = HttpRequest("GET", server.url, {}, None)
        async with asyncio.timeout(DEADLINE_S):
            found = await failure(request, 2, hosts=[host], timeout_s=0.2)
        ended.set()
    assert found == ("timeout", "no complete answer within 0.2 s", 2)


async def test_failed_requests_are_repeated_if_allowed() -> None:
    statuses = [503, 429, 200]
    with scripted(lambda asked: (statuses.pop(0), {"ok": True})) as server:
        host = server.url.removeprefix("http://")
        request = HttpRequest("GET", server.url, {}, None)
        assert (await ran(request, 3, hosts=[host])).value == {"ok": True}
        statuses[:] = [404]
        found = await failure(request, 3, hosts=[host])
        assert (found.code, found.attempts) == ("http_404", 1)
        statuses[:] = [302]
        assert (await failure(request, 3, hosts=[host])).code == "http_302"


async def test_a_redirect_names_its_target() -> None:
    to = "http://example.com/b"
    with scripted(lambda _: (302, {}, {"location": to})) as server:
        host = server.url.removeprefix("http://")
        found = await failure(HttpRequest("GET", server.url, {}, None), hosts=[host])
        assert found.message == f"redirects are not followed; this one leads to {to}"
