"""Text to SQL over Spider with two models, the same for all systems.

The small model names the tables that a question needs. The large model writes a query, SQLite
executes it, and if it fails, the large model sees the error and writes another one, at most three
in all. The shape is that of MAC-SQL (selector, decomposer, refiner) with one call each; the prompts
are ours.

Emulated engines write words without meaning, so the executed query does not come from the answer:
each row has the queries of its rounds. That is Spider's own query, and for a part of the rows first
one with an unknown column, so that SQLite refuses it and the loop goes on. A query runs after the
answer of its round, as with a model.
"""

from __future__ import annotations

import json
import lzma
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, Final
from zlib import crc32

import orjson

from weft_bench.mapred.spider_db import Database

QUESTIONS: Final = 12
ROUNDS: Final = 3
_QUESTIONS_FILE: Final = "prompts/spider_dev.jsonl.xz"
_SCHEMAS_FILE: Final = "prompts/spider_schemas.jsonl.xz"
# Of 20 rows, one query fails in three rows, and two queries in one row.
_OF: Final = 20
_ONCE: Final = 3
_TWICE: Final = 1
SELECTOR: Final = (
    "You choose tables. You read the schema of a database with some rows of each table, and a "
    "question. Name the tables and columns that a query for the question needs, and the columns "
    "over which these tables are joined. Name no others. Do not write the query."
)
WRITER: Final = (
    "You write one SQLite query that answers a question. You read the schema of the database with "
    "some rows of each table, the question, and the tables that another model has chosen for it; "
    "it may be wrong. Use only tables and columns of the schema, write each join condition, and "
    "prefer the simplest query. Write only the query. If a query has failed before, find the "
    "reason in the message of SQLite, and correct it."
)


def select_prompt(schema: str, question: str) -> str:
    """Return the user message of the small model."""
    return f"{schema}\n\nQuestion: {question}"


def write_prompt(schema: str, question: str, tables: str) -> str:
    """Return the user message of the large model. tables: the answer of the small one."""
    return f"{schema}\n\nQuestion: {question}\nTables: {tables}"


def failure_note(query: str, error: str) -> str:
    """Return what later rounds add to the user message."""
    return f" This query failed: {query} SQLite says: {error}"


def rounds(database: str, question: str, query: str) -> list[str]:
    """Return the query of each round. SQLite gives columns of one name in a query around it
    different names: `weft run` refuses equal ones.
    """
    place = crc32(f"{database}/{question}".encode()) % _OF
    failing = 2 if place < _TWICE else 1 if place < _TWICE + _ONCE else 0
    return [
        f"SELECT {f'column_{number}' if number < failing else '*'} FROM ({query})"
        for number in range(ROUNDS)
    ]


def workflow(small: str, large: str, tokens: int, databases: Sequence[str]) -> str:
    """Return the workflow as YAML (JSON is YAML). small, large: models. tokens: of each answer.
    databases: names of connections.
    """

    def llm(model: str, system: str, user: str) -> dict[str, Any]:
        exact = {"max_tokens": tokens, "parameters": {"ignore_eos": True}}
        return {"llm": {"model": model, "system": system, "user": user, **exact}}

    note = failure_note("{{ previous.query }}", "{{ previous.result.error }}")
    asked = write_prompt("{{ schema }}", "{{ question }}", "{{ tables }}")
    cases = [
        {"when": f"{{{{ db == '{name}' }}}}", "sql": {"query": "{{ query }}", "connection": name}}
        for name in databases
    ]
    body = {
        "draft": llm(large, WRITER, f"{asked}{{% if previous %}}{note}{{% endif %}}"),
        "query": {"format": "{{ queries[round - 1] if draft else draft }}"},
        "result": {"branch": cases, "on_error": "value"},
    }
    return json.dumps(
        {
            "weft": 1, "name": "spider",
            "inputs": {"db": "str", "schema": "str", "question": "str", "queries": "list"},
            "ops": {
                "tables": llm(small, SELECTOR, select_prompt("{{ schema }}", "{{ question }}")),
                "attempt": {
                    "loop": {"max": ROUNDS, "until": "{{ result.error is none }}"}, "body": body
                },
            },
            "outputs": {"tables": "tables", "attempt": "attempt"},
        }
    )  # fmt: skip


def rows(data: Path, count: int, seed: int, *, shuffled: bool = False) -> list[dict[str, Any]]:
    """Return the rows: twelve questions for each of some databases, drawn at random.

    data: folder of the recorded workloads. count: databases. shuffled: in random order; otherwise
    the questions of a database are neighbours. Raises OSError and ValueError.
    """
    known = schemas(data)
    asked = {name: found for name, found in _questions(data).items() if len(found) >= QUESTIONS}
    if count > len(asked):
        raise ValueError(
            f"{len(asked)} databases of the data set have {QUESTIONS} questions, not {count}"
        )
    rng = Random(seed)
    found = []
    for name in rng.sample(sorted(asked), count):
        text = known[name].text()
        for record in rng.sample(asked[name], QUESTIONS):
            question, query = record["question"], record["query"].strip().rstrip(";")
            queries = rounds(name, question, query)
            found.append({"db": name, "schema": text, "question": question, "queries": queries})
    if shuffled:
        rng.shuffle(found)
    return found


def create(data: Path, folder: Path, names: Sequence[str]) -> dict[str, str]:
    """Create databases in a folder. Returns their files by name. Raises OSError and ValueError."""
    found = {}
    for name in names:
        path = folder / f"{name}.db"
        try:
            schemas(data)[name].create(path)
        except sqlite3.Error as error:
            raise ValueError(f"database {name}: {error}") from None
        found[name] = str(path)
    return found


@cache
def schemas(data: Path) -> Mapping[str, Database]:
    """Return all databases by name. Raises OSError and ValueError."""
    return {one["db_id"]: Database.of(one) for one in _read(data / _SCHEMAS_FILE)}


def _questions(data: Path) -> dict[str, list[Mapping[str, Any]]]:
    found: dict[str, list[Mapping[str, Any]]] = {}
    for record in _read(data / _QUESTIONS_FILE):
        found.setdefault(record["db_id"], []).append(record)
    return found


def _read(path: Path) -> Iterator[Mapping[str, Any]]:
    with lzma.open(path, "rb") as file:
        yield from map(orjson.loads, file)
