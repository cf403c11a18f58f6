"""Reads of every form work, and other statements are refused."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from weft_run.io.sql import Databases, Found, SqlFailed
from weft_run.language.requests import SqlRequest

_SCHEMA = """
CREATE TABLE item (name TEXT PRIMARY KEY, price INT);
INSERT INTO item VALUES ('pen', 2), ('book', 9);
CREATE VIEW cheap AS SELECT name FROM item WHERE price < 5;
CREATE VIRTUAL TABLE note USING fts5(body);
INSERT INTO note VALUES ('hello world'), ('other');
CREATE VIRTUAL TABLE old USING fts4(body);
INSERT INTO old VALUES ('hello world');
CREATE VIRTUAL TABLE area USING rtree(id, low, high);
"""
READS = [
    "SELECT * FROM item",
    "SELECT * FROM cheap",
    "SELECT * FROM sqlite_master",
    "SELECT lower(name), count(*) OVER (), rank() OVER (ORDER BY price) FROM item",
    "SELECT name FROM item WHERE name LIKE 'p%' OR name GLOB 'b*'",
    "SELECT date('2020-01-01'), CURRENT_TIMESTAMP, abs(-1), round(1.5), printf('%d', 1)",
    """SELECT json_extract('{"a": 1}', '$.a'), '{"a": 1}' -> 'a', '{"a": 1}' ->> '$.a'""",
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 3) SELECT sum(i) FROM n",
    "VALUES (1), (2)",
    "EXPLAIN QUERY PLAN SELECT * FROM item",
    "SELECT value FROM json_each('[1, 2]')",
    "SELECT name FROM item WHERE name IN (SELECT value FROM json_each(:names))",
    "SELECT fullkey FROM json_tree('[[1], 2]')",
    "SELECT name FROM pragma_table_info('item')",
    "SELECT c.name FROM sqlite_master m, pragma_table_xinfo(m.name) c WHERE m.name = 'item'",
    "SELECT name FROM pragma_table_list",
    "PRAGMA table_info(item)",
    "PRAGMA index_list('item')",
    "PRAGMA user_version",
    "SELECT * FROM pragma_user_version",
    "SELECT * FROM note WHERE note MATCH 'hello'",
    "SELECT highlight(note, 0, '<', '>'), bm25(note) FROM note('hello') ORDER BY rank",
    "SELECT snippet(old), offsets(old) FROM old WHERE body MATCH 'hello'",
]
# Refused on each connection.
NEVER = [
    "ATTACH 'other.db' AS other",
    "ATTACH ':memory:' AS other",
    "DETACH main",
    "VACUUM",
    "VACUUM INTO 'other.db'",
    "PRAGMA writable_schema = 1",
    "PRAGMA user_version = 3",
    "PRAGMA user_version(3)",
    "PRAGMA page_size = 512",
    "PRAGMA journal_mode",
    "PRAGMA database_list",
    "SELECT * FROM pragma_database_list",
    "SELECT * FROM pragma_integrity_check",
    "SELECT load_extension('x')",
    "SELECT hex(fts3_tokenizer('simple'))",
    "SELECT FTS3_TOKENIZER('simple', :address)",
    "SELECT \"fts3_tokenizer\"('simple', :address)",
    "EXPLAIN SELECT fts3_tokenizer('simple')",
    "SELECT sqlite_log(1, 'x')",
    "UPDATE sqlite_master SET sql = ''",
]
WRITES = [
    "DELETE FROM item",
    "UPDATE item SET price = 1",
    "WITH x AS (SELECT 1) INSERT INTO item SELECT 'x', 1 FROM x",
    "CREATE TABLE more (a)",
    "CREATE TEMP VIEW more AS SELECT 1",
    "INSERT INTO note VALUES ('x')",
    "DROP TABLE note",
    "ALTER TABLE item RENAME COLUMN price TO cost",
    "REINDEX",
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "shop.db"
    connection = sqlite3.connect(path)
    connection.executescript(_SCHEMA)
    connection.close()
    return path


@pytest.fixture
def databases(path: Path) -> Iterator[Databases]:
    databases = Databases({"shop": path}, 60.0)
    yield databases
    databases.close()


def asked(databases: Databases, query: str, write: bool = False) -> Found:
    names = {"names": '["pen"]', "address": "AAAAAAAA"}
    request = SqlRequest("shop", query, names, write)
    connection = databases.take(request)
    try:
        return connection.query(request)
    finally:
        databases.give(request, connection)


@pytest.mark.parametrize("write", [False, True])
@pytest.mark.parametrize("query", READS)
def test_reads_work(databases: Databases, query: str, write: bool) -> None:
    assert asked(databases, query, write).rows


@pytest.mark.parametrize("query", [*NEVER, *WRITES, "BEGIN", "COMMIT"])
def test_other_statements_are_refused_on_a_connection_for_reads(
    databases: Databases, path: Path, query: str
) -> None:
    before = path.read_bytes()
    with pytest.raises(SqlFailed, match=r"not allowed|may not be modified"):
        asked(databases, query)
    databases.close()
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("query", NEVER)
def test_some_statements_are_refused_on_every_connection(databases: Databases, query: str) -> None:
    with pytest.raises(SqlFailed, match=r"not allowed|may not be modified"):
        asked(databases, query, write=True)


@pytest.mark.parametrize("query", WRITES)
def test_writes_work_where_they_are_declared(databases: Databases, query: str) -> None:
    asked(databases, query, write=True)


def test_a_list_is_a_parameter(databases: Databases) -> None:
    query = "SELECT price FROM item WHERE name IN (SELECT value FROM json_each(:names))"
    assert asked(databases, query) == Found([{"price": 2}], True)
