"""Every study runs, and the search of a scale."""

from __future__ import annotations

import json
from collections.abc import Callable
from math import inf
from pathlib import Path

import pytest
from typer.testing import CliRunner
from weft_bench import cli
from weft_bench.studies.cells import Cell
from weft_bench.studies.metrics import jain, measure
from weft_bench.studies.plays import least_scale
from weft_bench.studies.study import Column, load, names


@pytest.mark.parametrize(
    ("slowdown", "expected"),
    [
        (lambda scale: 5.0, 5.0),
        (lambda scale: 40.0, 40.0),
        # Tighter deadlines lead to more haste.
        (lambda scale: 4 + 2 / scale, 2 + 6**0.5),
        # Below a scale, all are late and first come, first served again.
        (lambda scale: 30.0 if scale < 11 else 9.0, 11.0),
        # Twelve steps of half a percent would end above 7.5.
        (lambda scale: 0.995 * scale if scale > 7 else 7.5, 7.0),
    ],
)
def test_least_scale_makes_its_deadlines_just_attainable(
    slowdown: Callable[[float], float], expected: float
) -> None:
    found = least_scale(slowdown)
    assert slowdown(found) <= found
    assert found == pytest.approx(expected, rel=0.04)


def test_least_scale_is_infinite_if_no_scale_is_attained() -> None:
    assert least_scale(lambda scale: 2 * scale) == inf


def test_fairness_is_one_for_equal_shares_and_one_of_n_for_a_single_winner() -> None:
    assert jain([0.4, 0.4]) == jain([0.0, 0.0]) == pytest.approx(1.0)
    assert jain([1.0, 0.0, 0.0, 0.0]) == pytest.approx(0.25)


@pytest.mark.slow
@pytest.mark.engine
@pytest.mark.parametrize("name", names())
def test_a_study_measures_the_figures_of_its_tables(name: str) -> None:
    study = load(name)
    settings = {**dict(study.cells(quick=True)[-1].settings), "programs": 3}
    if study.measure == "kinds":
        # A scene's kinds of programs are part of the names of figures.
        settings["programs"] = 7
    if study.measure != "programs" and study.measure != "requests":
        settings.setdefault("scale", 5.0)
    found = measure(study, Cell(tuple(sorted(settings.items())), 0))
    shown = {
        column if isinstance(column, str) else column.figure
        for table in study.tables
        if study.measure != "kinds" or settings["case"] in table.cases
        for column in table.columns.values()
    }
    # Three programs have no middle half, and only trace 6 has single calls.
    rare = {"", "steady_token_latency", "single_p95"}
    deeper = {figure for figure in shown if figure[-1:].isdigit() or figure.endswith("+")}
    assert shown - rare - deeper <= found.keys()


@pytest.mark.slow
@pytest.mark.engine
def test_the_command_plays_a_study_and_writes_its_tables(tmp_path: Path) -> None:
    files = {end: str(tmp_path / f"of.{end}") for end in ("json", "md")}
    done = CliRunner().invoke(
        cli.bench,
        ["study", "sutradhara-8", "--quick", "--jobs", "1", "--json", files["json"],
         "--page", files["md"]],
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    document = json.loads(Path(files["json"]).read_text())
    assert document["command"] == "weft bench study sutradhara-8 --quick"
    assert document["cells"]
    assert document["tables"][0]["title"] in done.output
    assert "published" in Path(files["md"]).read_text().lower()


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["nothing"], 2, "unknown study 'nothing'"),
        (["hexgen-9", "--jobs", "-1"], 2, "--jobs"),
    ],
)
def test_the_command_refuses_what_it_cannot_play(
    arguments: list[str], status: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(cli.bench, ["study", *arguments])
    assert (done.exit_code, message in done.output) == (status, True)


def test_the_command_lists_the_studies() -> None:
    done = CliRunner().invoke(cli.bench, ["study"])
    assert done.exit_code == 0
    assert [line.split()[0] for line in done.output.splitlines()] == names()


def test_a_column_is_a_mean_or_one_comparison() -> None:
    for name in names():
        for table in load(name).tables:
            for column in table.columns.values():
                if isinstance(column, Column):
                    assert not (column.over and column.of)
                    assert bool(column.figure) != bool(column.published)
