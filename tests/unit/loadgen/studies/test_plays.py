"""Every study runs, and the search of a scale."""

from __future__ import annotations

import json
from collections.abc import Callable
from math import inf
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner
from weft_bench import cli
from weft_bench.studies.cells import Cell
from weft_bench.studies.metrics import jain, measure
from weft_bench.studies.plays import least_scale, programs
from weft_bench.studies.study import Column, Study, load, names


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


def _sessions(folder: Path) -> Path:
    """Write three recorded sessions of three calls with long gaps."""
    calls = [
        {"in": 640, "out": 20, "hash_ids": list(range(10 * n)), "stop": "tool_use"}
        | {"think_time": 60}
        for n in (1, 2, 3)
    ]
    (folder / "coding_sessions").mkdir()
    (folder / "coding_sessions" / "sessions.jsonl").write_text(
        "".join(
            json.dumps({"id": name, "block_size": 64, "requests": calls}) + "\n" for name in "abc"
        )
    )
    return folder


def _of(name: str, data: Path) -> Study:
    return msgspec.structs.replace(load(name), data=str(data))


@pytest.mark.slow
@pytest.mark.engine
@pytest.mark.parametrize("name", names())
def test_a_study_measures_the_figures_of_its_tables(name: str, tmp_path: Path) -> None:
    study = _of(name, _sessions(tmp_path))
    settings = {**dict(study.cells(quick=True)[-1].settings), "programs": 3}
    if study.measure != "programs" and study.measure != "requests":
        settings.setdefault("scale", 5.0)
    found = measure(study, Cell(tuple(sorted(settings.items())), 0))
    shown = {
        column if isinstance(column, str) else column.figure
        for table in study.tables
        for column in table.columns.values()
    }
    # Three programs have no middle half, and only trace 6 has single calls.
    rare = {"", "steady_token_latency", "single_p95"}
    deeper = {figure for figure in shown if figure[-1:].isdigit() or figure.endswith("+")}
    assert shown - rare - deeper <= found.keys()


@pytest.mark.engine
def test_sessions_are_cut_to_calls_and_gaps(tmp_path: Path) -> None:
    study = _of("help", _sessions(tmp_path))
    scene = msgspec.structs.replace(study.scene_of(study.cells()[0]), calls=2)
    found = programs(scene, 0, 3)
    assert [len(program.calls) for program in found] == [2, 2, 2]
    assert {call.call.gap_s for program in found for call in program.calls} == {10.0}
    # At full length: 64 tokens a block.
    assert [call.prompt_tokens for call in found[0].calls] == [640, 1280]


@pytest.mark.slow
@pytest.mark.engine
def test_the_command_plays_a_study_and_writes_its_tables_and_chart(tmp_path: Path) -> None:
    files = {end: str(tmp_path / f"help.{end}") for end in ("json", "md", "svg")}
    done = CliRunner().invoke(
        cli.bench,
        ["study", "help", "--quick", "--data", str(_sessions(tmp_path)), "--jobs", "1",
         "--json", files["json"], "--page", files["md"], "--chart", files["svg"]],
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "| resident" in done.output
    document = json.loads(Path(files["json"]).read_text())
    assert document["command"] == "weft bench study help --quick --data DATA"
    assert [cell["settings"]["system"] for cell in document["cells"]] == [
        "fcfs", "program_fifo", "resident"
    ]  # fmt: skip
    assert "| program_fifo |" in Path(files["md"]).read_text()
    assert Path(files["svg"]).read_text().count("<rect") == 6


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["nothing"], 2, "unknown study 'nothing'"),
        (["help"], 2, "--data must be the folder"),
        (["hexgen-9", "--chart", "x.svg"], 2, "has no chart"),
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
