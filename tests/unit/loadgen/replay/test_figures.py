"""The report of a replay."""

from __future__ import annotations

import json

import pytest
from weft_bench.drive.gateway import EngineCounters
from weft_bench.drive.player import Play, ProgramResult
from weft_bench.replay import command as replay
from weft_bench.report.figures import write_json
from weft_bench.report.rows import figures


def result(name, arrival, finish, tokens, **more):
    return ProgramResult(name, arrival, finish, calls=2, output_tokens=tokens, **more)


GOOD = [
    result("a", 0.0, 10.0, 100, prompt_tokens=80, cached_tokens=60, waiting_s=2.0),
    result("b", 5.0, 25.0, 50, prompt_tokens=20, cached_tokens=0, preemptions=3),
]
BAD = ProgramResult("c", 0.0, 1.0, errors=["500"])


FCFS, PLAS = Play(GOOD), Play(GOOD[:1], EngineCounters(1, 20, 4, 3))


NOTHING = EngineCounters()


def values(results, engines=NOTHING):
    return replay.values(Play(results, engines))


def test_figures_follow_the_definitions_of_the_paper():
    found = values([*GOOD, BAD])
    assert found["program_token_latency"] == pytest.approx((10 / 100 + 20 / 50) / 2)
    assert found["response_mean"] == 15.0
    assert found["response_p50"] == 15.0
    assert found["prefix_hit_rate"] == 0.6
    assert found["waiting_mean"] == 1.0
    assert (found["programs"], found["calls"], found["preemptions"]) == (2, 4, 3)
    assert found["errors"] == 1


def test_counts_of_engines_have_units():
    found = values(GOOD, EngineCounters(5, 70, 12, 8))
    names = ("displacements", "recomputed_tokens", "blocks_swapped_out", "blocks_swapped_in")
    assert [found[name] for name in names] == [5, 70, 12, 8]
    units = {column.figure: column.unit for column in replay.COLUMNS}
    assert [units[name] for name in names] == ["times", "tokens", "blocks", "blocks"]


def test_no_programs_give_zeros():
    assert values([])["response_mean"] == 0.0


def test_ratios_compare_with_the_first_policy(capsys):
    results = {"fcfs": FCFS, "mlfq": FCFS, "plas": PLAS}
    found = replay.ratios(results)
    assert found[("plas",)]["response_mean"] == pytest.approx(10 / 15)
    assert found[("mlfq",)]["response_mean"] == 1.0
    assert "preemptions" not in found[("plas",)]
    replay.show(results, "t")
    assert "over fcfs" in capsys.readouterr().out
    replay.show({"fcfs": FCFS}, "t")
    assert "over fcfs" not in capsys.readouterr().out


def test_every_figure_in_the_file_has_name_value_and_unit(tmp_path):
    path = tmp_path / "deep" / "f.json"
    write_json(
        path, "weft bench replay", {"seed": 1}, figures(replay.rows({"fcfs": FCFS}), replay.COLUMNS)
    )
    document = json.loads(path.read_text())
    assert document["configuration"] == {"seed": 1}
    assert document["machine"]
    assert all(set(f) == {"name", "value", "unit"} for f in document["figures"])
    assert document["figures"][0]["name"] == "fcfs/programs"


def test_plot_is_an_image(tmp_path):
    replay.plot({"fcfs": FCFS, "plas": FCFS}, "t", tmp_path / "p.png")
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
