"""The report of a bench on real engines."""

from __future__ import annotations

import pytest
from weft_bench.drive.gateway import EngineCounters
from weft_bench.drive.player import Play, ProgramResult
from weft_bench.gpu.engine import Counts
from weft_bench.gpu.play import Outcome
from weft_bench.report.gpu import (
    COLUMNS,
    bound,
    equal_latency,
    figures,
    ratios,
    show,
    summarise,
)
from weft_bench.workloads.cutting import ReadyCall, ReadyProgram
from weft_bench.workloads.schema import TraceCall


def program(name, *tokens):
    calls = tuple(ReadyCall(TraceCall(), 10, count) for count in tokens)
    return ReadyProgram(name, calls, cut=False, trimmed=False)


def outcome():
    results = [
        ProgramResult("a", 1.0, finish_s=3.0, calls=2, output_tokens=40),
        # Ten of its hundred tokens existed when the play ended.
        ProgramResult("b", 0.0, finish_s=10.0, calls=1, output_tokens=10, cut=True),
        ProgramResult("c", 0.0, finish_s=1.0, errors=["500: broken"]),
    ]
    engine = Counts(queried=200, hit=150, preemptions=3, prompt_tokens=200, output_tokens=50)
    play = Play(results, EngineCounters(displacements=2, blocks_swapped_out=9))
    programs = [program("a", 20, 20), program("b", 10, 90), program("c", 5)]
    return Outcome(programs, play, engine, rate=0.5, seconds=10.0)


def test_cut_program_counts_with_its_time_so_far():
    found = summarise(outcome())
    assert set(found) == {column.figure for column in COLUMNS}
    assert (found["programs"], found["cut"], found["errors"]) == (3, 1, 1)
    assert found["response_mean"] == pytest.approx((2 + 10) / 2)
    # The whole hundred tokens would have taken at least ten seconds.
    assert found["program_token_latency"] == pytest.approx((2 / 40 + 10 / 100) / 2)
    assert found["prefix_hit_rate"] == 0.75
    assert found["tokens_per_s"] == 5.0
    assert found["preemptions"] == 3
    assert found["blocks_swapped_out"] == 9


def cell(mean=1.0, rate=1.0, latency=0.1, cut=0):
    values = dict.fromkeys((column.figure for column in COLUMNS), 0.0)
    return {
        **values, "response_mean": mean, "rate": rate, "program_token_latency": latency, "cut": cut,
    }  # fmt: skip


def test_ratios_are_of_the_same_scene():
    cells = {"lats/1/ours": cell(1.0), "lats/1/mlfq": cell(4.0), "bfcl/1/mlfq": cell(9.0)}
    # Tails are 0 here, so they have no ratios.
    assert ratios(cells) == {
        ("lats", "1", "mlfq"): {"response_mean": 0.25, "program_token_latency": 1.0}
    }
    names = {figure.name: figure.value for figure in figures(cells)}
    assert names["lats/1/ours_over_mlfq/response_mean"] == 0.25


@pytest.mark.parametrize(
    ("ours", "theirs", "sign"), [(0, 0, ""), (2, 0, ">"), (0, 2, "<"), (2, 2, "?")]
)
def test_ratio_with_cut_programs_is_a_bound(ours, theirs, sign):
    cells = {"lats/1/ours": cell(cut=ours), "lats/1/vllm": cell(cut=theirs)}
    assert bound(cells, "lats/1", "vllm") == sign


def test_throughput_is_compared_at_the_baselines_middle_load():
    cells = {
        **{f"bfcl/{r}/vllm": cell(rate=r, latency=t) for r, t in ((1, 0.1), (2, 0.4), (3, 2.0))},
        **{f"bfcl/{r}/ours": cell(rate=r, latency=t) for r, t in ((1, 0.1), (2, 0.1), (3, 0.2))},
    }
    assert equal_latency(cells, "bfcl", "vllm") == "≥1.50"
    assert equal_latency(cells, "bfcl", "mlfq") == "-"
    cells["bfcl/3/ours"] = cell(rate=3, latency=1.6)
    assert 1.0 < float(equal_latency(cells, "bfcl", "vllm")) < 1.5


def test_every_table_names_the_device(capsys):
    show({"lats/1/ours": cell(), "lats/1/mlfq": cell()}, "CPU, no GPU")
    assert capsys.readouterr().out.count("CPU, no GPU") == 3
    # A single system has no ratios.
    show({"lats/1/ours": cell()}, "x")
    assert capsys.readouterr().out.count("x: ") == 1
