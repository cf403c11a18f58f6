"""Text to SQL over Spider: its rows, its databases, and queries that fail."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from support.spider import spider_data
from weft_bench.mapred.spider import QUESTIONS, ROUNDS, create, rounds, rows, schemas, workflow
from weft_bench.mapred.spider_db import ROWS, SHOWN
from weft_run.language.spec import load
from weft_run.plan.groups import leading_columns


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return spider_data(tmp_path, {"music": 14, "radio": 12, "small": 3})


def test_rows_are_twelve_questions_for_each_database(data: Path) -> None:
    found = rows(data, 2, 7)
    assert found == rows(data, 2, 7)
    names = [row["db"] for row in found]
    assert sorted(set(names)) == ["music", "radio"]
    assert names == sorted(names, key=names.index)
    assert len({row["question"] for row in found}) == 2 * QUESTIONS
    mixed = rows(data, 2, 7, shuffled=True)
    assert mixed != found
    assert sorted(map(str, mixed)) == sorted(map(str, found))
    with pytest.raises(ValueError, match="2 databases of the data set have 12 questions, not 3"):
        rows(data, 3, 7)


def test_databases_have_rows_that_join(data: Path, tmp_path: Path) -> None:
    files = create(data, tmp_path, ["music"])
    connection = sqlite3.connect(files["music"])
    joined = connection.execute("SELECT count(*) FROM song JOIN singer ON Singer = Id").fetchone()
    assert joined == (ROWS,)
    assert connection.execute("SELECT count(DISTINCT Code) FROM song").fetchone() == (ROWS,)
    tables = connection.execute("SELECT name FROM sqlite_master").fetchall()
    assert tables == [("singer",), ("song",)]
    shown = connection.execute("SELECT * FROM singer LIMIT 1").fetchone()
    connection.close()
    text = schemas(data)["music"].text()
    assert " | ".join(map(str, shown)) in text
    assert text.count(" | ") == SHOWN * (1 + 4)


def _fails(connection: sqlite3.Connection, query: str) -> bool:
    try:
        connection.execute(query)
    except sqlite3.OperationalError:
        return True
    return False


def test_some_queries_fail_once_or_twice_and_none_fails_in_the_last_round(
    data: Path, tmp_path: Path
) -> None:
    connection = sqlite3.connect(create(data, tmp_path, ["music"])["music"])
    failures = []
    for number in range(400):
        made = rounds("music", f"{number}?", "SELECT Name FROM singer")
        assert len(made) == ROUNDS
        failures.append(sum(_fails(connection, query) for query in made))
    connection.close()
    assert 40 < failures.count(1) < 80
    assert 8 < failures.count(2) < 34
    assert set(failures) == {0, 1, 2}


def test_the_workflow_begins_with_the_schema_and_has_two_models() -> None:
    made = load(workflow("small", "large", 8, ["music", "radio"]))
    assert leading_columns(made) == ("schema", "question")


def test_columns_of_one_name_get_different_names(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "x.db") as database:
        database.execute("CREATE TABLE a (name TEXT)")
        database.execute("INSERT INTO a VALUES ('x')")
        last = rounds("x", "q", "SELECT one.name, two.name FROM a one JOIN a two")[-1]
        names = [column[0] for column in database.execute(last).description]
    assert len(set(names)) == 2
