"""The bench of forecasts."""

from __future__ import annotations

import json

from weft_bench.cli.parts import ForecastsOptions
from weft_bench.micro.forecasts import levels_of, play, programs_of, row, run
from weft_bench.workloads.cutting import ReadyCall, ReadyProgram
from weft_bench.workloads.schema import Part, TraceCall


def test_forecasts_of_generated_queries_are_calibrated():
    """The goal for the 90th percentile is 0.87 to 0.93; remaining calls are whole numbers."""
    programs = [one for one, _ in zip(programs_of("text2sql-3", "", 7), range(150), strict=False)]
    found = {what: row(150, forecasts) for what, forecasts in play(programs, 16).items()}
    assert 0.87 <= found["answer"]["p90_covers"] <= 0.93
    assert 0.87 <= found["remaining"]["p90_covers"] <= 0.96
    assert found["remaining"]["early_p90_covers"] >= 0.85
    assert found["answer"]["error"] <= 0.35


def test_parallel_calls_have_one_position():
    calls = [TraceCall(parts=(Part("a", 10),), after=after) for after in ((), (), (0, 1), (2,))]
    ready = ReadyProgram("p", tuple(ReadyCall(one, 10, 5) for one in calls), False, False)
    assert [len(level) for level in levels_of(ready)] == [2, 1, 1]
    found = play([ready] * 3, 1)
    # One forecast for each position, compared with the calls after it.
    assert [one.actual for one in found["remaining"]] == [2, 1, 0] * 3
    assert len(found["answer"]) == 11


def test_the_command_shows_two_rows_for_each_set(tmp_path, capsys):
    file = tmp_path / "forecasts.json"
    options = ForecastsOptions(sets=("text2sql-1",), programs=10, seeds=1, json_file=str(file))
    assert run(options) == 0
    assert "text2sql-1" in capsys.readouterr().out
    assert len(json.loads(file.read_text())["figures"]) == 12


def test_a_missing_set_is_named(capsys):
    assert run(ForecastsOptions(data="/nowhere", sets=("none",))) == 2
    assert "/nowhere/none does not exist" in capsys.readouterr().err
