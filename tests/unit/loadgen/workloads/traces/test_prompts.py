"""Sets of single prompts."""

from __future__ import annotations

from random import Random

import pytest
from weft_bench.workloads.traces import prompts
from weft_bench.workloads.traces.files import FORMATS

MATHS = {"question": "1 + 1?", "answer": "It is\n#### 2"}
CHAT = {"question_id": 81, "category": "writing", "turns": ["Write.", "Write it again."]}
REPORT = {"table": [["", "2019"], ["Sales", "4"]], "paragraphs": ["P."], "questions": ["a?", "b?"]}
SQL = {"db_id": "pets", "question": "How many?", "query": "SELECT count(*) FROM dog"}
SCHEMA = {
    "db_id": "pets",
    "table_names_original": ["dog", "owner"],
    "column_names_original": [[-1, "*"], [0, "id"], [0, "owner_id"], [1, "id"]],
    "column_types": ["text", "number", "number", "number"],
    "primary_keys": [1, 3],
    "foreign_keys": [[2, 3]],
}


def test_problem_is_one_call_with_the_sets_answer_length():
    (program,) = prompts.gsm8k([MATHS])
    (call,) = program.calls
    assert call.messages == ({"role": "user", "content": "1 + 1?"},)
    assert call.output_bytes == len(MATHS["answer"])


def test_second_turn_follows_an_answer_of_the_first_calls_length():
    (program,) = prompts.mt_bench([CHAT], Random(1))
    first, second = program.calls
    assert [m["role"] for m in second.messages] == ["user", "assistant", "user"]
    length = len(second.messages[1]["content"])
    assert length == pytest.approx(4 * first.output_tokens, abs=14)
    assert first.gap_s > 0
    assert second.gap_s == 0


def test_questions_about_a_table_run_in_parallel_after_it():
    (program,) = prompts.tatqa([REPORT], Random(1))
    one, other = program.calls
    assert one.messages[0] == other.messages[0]
    assert "Sales | 4" in one.messages[0]["content"]
    assert one.messages[1] != other.messages[1]
    assert [call.needs(n) for n, call in enumerate(program.calls)] == [(), ()]


def test_questions_about_a_database_begin_with_its_schema():
    one, other = prompts.spider([SQL, {**SQL, "question": "Whose?"}], [SCHEMA])
    head = one.calls[0].messages[0]
    assert head == other.calls[0].messages[0]
    assert head["content"].endswith(
        "dog(id number, owner_id number)\nowner(id number)\ndog.owner_id -> owner.id"
    )
    assert one.calls[0].output_bytes == len(SQL["query"])
    with pytest.raises(ValueError, match="unknown schema of database pets"):
        list(prompts.spider([SQL], []))


def test_each_set_is_recognised_by_one_reader():
    found = [
        [f.name for f in FORMATS if f.fields <= set(one)] for one in (MATHS, CHAT, REPORT, SQL)
    ]
    assert found == [["gsm8k"], ["mt_bench"], ["tatqa"], ["spider"]]
