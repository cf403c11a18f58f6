"""`weft bench workflows`: its rows, its table and its goals."""

from __future__ import annotations

import json
import lzma
from dataclasses import replace
from pathlib import Path

import pytest
from support.scripted_server import scripted
from typer.testing import CliRunner
from weft_bench import cli
from weft_bench.cli.parts import WorkflowsOptions
from weft_bench.mapred.command import LEAST, Cell, command_of, missed, rivals, stack_options, table
from weft_bench.mapred.plays import Played, Servers
from weft_bench.mapred.workload import EXPERTS, rows, workflow
from weft_bench.mapred.workloads import (
    ALGORITHM_1,
    GATEWAY,
    IN_TURN,
    OURS,
    WORKLOADS,
    models_of,
)
from weft_run.language.spec import load
from weft_run.plan.groups import leading_columns

THEIRS = [name for name in WORKLOADS["tatqa"].systems if name != OURS]
REAL = WorkflowsOptions("DATA", engines="real").whole()
TATQA = WorkflowsOptions("DATA").whole()
SPIDER = WorkflowsOptions("DATA", workload="spider").whole()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "prompts").mkdir()
    with lzma.open(tmp_path / "prompts/tatqa_dev.jsonl.xz", "wt") as file:
        for number in range(9):
            questions = [f"{number}: question {n}?" for n in range(6 if number else 5)]
            page = {"table": [["sales", str(number)]], "paragraphs": ["Text."]}
            file.write(json.dumps({**page, "questions": questions}) + "\n")
    return tmp_path


def cells(seconds: float = 1.0, computed: int = 10, answer: str = "a") -> list[Cell]:
    ours = Played(seconds, 100, 100 - computed, 8, 5.0, 0.0, (answer,))
    other = Played(2.0, 100, 70, 8, 5.0, 0.0, ("a",))
    found = [Cell("grouped", 0, name, other) for name in THEIRS]
    return [*found, Cell("grouped", 0, OURS, ours)]


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


def test_goals_are_ratios_over_each_other_system() -> None:
    assert missed(cells(), REAL) == []
    slow = missed(cells(seconds=1.9), REAL)
    assert slow == [f"grouped, over {name}: seconds 0.950, goal at most 0.75" for name in THEIRS]
    many = missed(cells(computed=20), REAL)
    assert all("computed prompt tokens 0.667, goal at most 0.5" in one for one in many)
    assert missed(cells(seconds=9), TATQA) == []


def test_other_answers_and_late_engines_are_misses() -> None:
    assert missed(cells(answer="b"), TATQA) == [f"grouped, seed 0, {OURS}: 1 of 1 answers differ"]
    late = Cell("grouped", 1, OURS, Played(1.0, 9, 1, 1, 5.0, 0.2, ()))
    assert missed([late], TATQA) == [
        f"grouped, seed 1, {OURS}: the machine was too slow: 20.0% late"
    ]


def test_the_table_has_ratios_on_the_same_rows() -> None:
    made = table(cells(), TATQA)
    assert [row[:4] for row in made["rows"]] == [
        *(["grouped", name, "2.00", "0.500"] for name in THEIRS),
        ["grouped", OURS, "1.00", ""],
    ]
    assert made["rows"][0][5] == "0.333"
    assert made["title"].endswith("All systems have the same answers")
    assert table(cells(answer="b"), TATQA)["title"].endswith("Answers differ")


def test_commands_name_what_they_ran() -> None:
    options = WorkflowsOptions("secret/folder", engines="real", kv_blocks=500).whole()
    assert "--engines real" in command_of(options)
    assert "secret" not in command_of(options)
    assert stack_options(options)[-2:] == ["--num-gpu-blocks-override", "500"]
    assert "--emulated" in stack_options(TATQA)
    assert stack_options(SPIDER)[:5] == [
        "--replicas", "4", "--emulated", "--preset", "8b-a100,32b-a100"
    ]  # fmt: skip
    assert "--workload spider" in command_of(SPIDER)


def test_goals_of_spider_are_for_each_rival_and_over_seeds() -> None:
    def plays(ratios: dict[str, float]) -> list[Cell]:
        made = [Cell("grouped", 0, OURS, Played(1.0, 9, 1, 1, 5.0, 0.0, ()))]
        made += [Cell("grouped", 1, OURS, Played(2.0, 9, 1, 1, 5.0, 0.0, ()))]
        for name, ratio in ratios.items():
            for one in made[:2]:
                slower = Played(one.played.seconds / ratio, 9, 1, 1, 5.0, 0.0, ())
                made.append(Cell("grouped", one.seed, name, slower))
        return made

    goals = WORKLOADS["spider"].goals[True]
    met = {name: goal["seconds"] - 0.01 for name, goal in goals.items()}
    assert missed(plays(met), SPIDER) == []
    assert missed(plays({**met, ALGORITHM_1: 0.9}), SPIDER) == [
        f"grouped, over {ALGORITHM_1}: seconds 0.900, goal at most 0.85"
    ]
    rows = table(plays(met), SPIDER)["rows"]
    assert rows[-1][2] == "1.50 [1.00 to 2.00]"
    assert rows[-2][3] == "0.840"


def test_models_are_those_of_the_presets() -> None:
    two = Servers("http://g", {}, ("emulated-32b", "emulated-8b"))
    assert models_of(SPIDER, 2, two) == ("emulated-8b", "emulated-32b")
    assert models_of(TATQA, 1, two) == ("emulated-32b",)
    with pytest.raises(ValueError, match="emulated-32b, the gateway serves emulated-8b"):
        models_of(SPIDER, 2, Servers("http://g", {}, ("emulated-8b",)))
    assert Servers("g", {"a": ("m", "n"), "b": ("n",)}, ("m", "n")).of("n") == ["a", "b"]


def test_spider_needs_emulated_engines() -> None:
    line = ["workflows", "--data", "x", "--workload", "spider", "--engines", "real"]
    done = CliRunner().invoke(cli.bench, line)
    assert done.exit_code == 2
    assert "emulated engines only" in done.output


def test_a_missing_data_set_is_an_error_before_engines_start(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli.bench, ["workflows", "--data", str(tmp_path)])
    assert done.exit_code == 2
    assert "tatqa_dev" in done.output


def test_the_table_has_the_least_tokens_of_any_order() -> None:
    plays = [replace(one, least=5) for one in cells()]
    assert table(plays, TATQA)["rows"][-1][:6] == ["grouped", LEAST, "", "", "5.00", "2.00"]
    assert LEAST not in str(table(cells(), TATQA)["rows"])


def test_rivals_are_compared_with_each_other_and_with_the_least() -> None:
    slow = Played(3.0, 100, 60, 8, 5.0, 0.0, ("a",))
    plays = [
        replace(one, least=15, played=slow if one.system == GATEWAY else one.played)
        for one in cells()
    ]
    assert rivals(plays)["rows"] == [
        ["grouped", IN_TURN, "", "", "0.500"],
        ["grouped", GATEWAY, "1.50", "1.33", "0.375"],
    ]
    assert rivals(cells())["rows"][0] == ["grouped", IN_TURN, "", "", ""]


def test_caches_are_emptied_without_setting_an_order() -> None:
    with scripted(lambda _: (200, {})) as server:
        Servers(server.url, {}, ()).reset()
        (asked,) = server.to("POST", "/weft/policy")
    assert asked.json == {"reset_cache": True}
