"""`weft bench agents --rows`: its rows, its table and what it refuses."""

from __future__ import annotations

import json
import lzma
from pathlib import Path

import pytest
from support.scripted_server import scripted
from weft_bench.cli.agents import AgentsOptions
from weft_bench.rows.command import OURS, SYSTEMS, Cell, command_of, missed, run, table
from weft_bench.rows.plays import Played, Servers
from weft_bench.rows.workload import EXPERTS, rows, workflow
from weft_run.language.spec import load
from weft_run.plan.groups import leading_columns


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "prompts").mkdir()
    with lzma.open(tmp_path / "prompts/tatqa_dev.jsonl.xz", "wt") as file:
        for number in range(9):
            questions = [f"{number}: question {n}?" for n in range(6 if number else 5)]
            page = {"table": [["sales", str(number)]], "paragraphs": ["Text."]}
            file.write(json.dumps({**page, "questions": questions}) + "\n")
    return tmp_path


def cells(answer: str = "a", late: float = 0.0) -> list[Cell]:
    """Return plays in which ours takes half the time and a third of the tokens."""
    other = Played(2.0, 100, 70, 8, 0.0, ("a",))
    found = [Cell("grouped", 0, name, other) for name in SYSTEMS if name != OURS]
    return [*found, Cell("grouped", 0, OURS, Played(1.0, 100, 90, 8, late, (answer,)))]


def test_rows_are_six_questions_for_each_context(data: Path) -> None:
    found = rows(data, 4, 7)
    assert found == rows(data, 4, 7)
    contexts = [row["context"] for row in found]
    assert len(contexts) == 24
    assert all(len(set(contexts[n : n + 6])) == 1 for n in range(0, 24, 6))
    mixed = rows(data, 4, 7, shuffled=True)
    assert mixed != found
    assert sorted(map(str, mixed)) == sorted(map(str, found))
    with pytest.raises(ValueError, match="has 8 contexts, not 9"):
        rows(data, 9, 7)


def test_the_workflow_begins_with_the_context() -> None:
    made = load(workflow("m", 8))
    assert leading_columns(made) == ("context", "question")
    assert len(made.operators) == len(EXPERTS) + 1


def test_the_table_has_ratios_on_the_same_rows() -> None:
    found = table(cells())["rows"]
    assert [row[:4] for row in found] == [
        *(["grouped", name, "2.00", "0.500"] for name in SYSTEMS if name != OURS),
        ["grouped", OURS, "1.00", ""],
    ]
    assert found[0][5] == "0.333"


def test_other_answers_and_late_engines_are_misses() -> None:
    assert missed(cells()) == []
    assert missed(cells(answer="b")) == [f"grouped, seed 0, {OURS}: 1 of 1 answers differ"]
    assert missed(cells(late=0.2)) == [
        f"grouped, seed 0, {OURS}: the machine was too slow: 20.0% late"
    ]


def test_the_command_is_without_the_folder_of_the_data() -> None:
    line = command_of(AgentsOptions("secret/folder", engines="real", pages=4))
    assert line.startswith("weft bench agents --rows --data DATA --engines real")
    assert "--pages 4" in line
    assert "secret" not in line


def test_a_missing_data_set_is_an_error_before_engines_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(AgentsOptions(str(tmp_path), rows=True)) == 2
    assert "tatqa_dev" in capsys.readouterr().err


def test_caches_are_emptied_without_setting_an_order() -> None:
    with scripted(lambda _: (200, {})) as server:
        Servers(server.url, (), "m").reset()
        (asked,) = server.to("POST", "/weft/policy")
    assert asked.json == {"reset_cache": True}
