"""A cell's programs are the same for all systems."""

from __future__ import annotations

import pytest
from weft_bench.cli.gpu import WORKLOADS, GpuOptions
from weft_bench.drive.player import Play, ProgramResult
from weft_bench.gpu.cells import count
from weft_bench.gpu.engine import EngineError
from weft_bench.gpu.play import arrivals, nothing_failed, output_tokens, programs


@pytest.mark.parametrize("workload", WORKLOADS)
def test_programs_fit_the_context_and_are_the_same_each_time(workload):
    found = programs(workload, 3, 5, 4096)
    assert len(found) == 5
    assert found == programs(workload, 3, 5, 4096)
    assert found == programs(workload, 3, 9, 4096)[:5]
    assert all(c.prompt_tokens + c.max_tokens <= 4096 for p in found for c in p.calls)
    assert len({program.id for program in found}) == 5


def test_rate_sets_the_number_of_arrivals_in_the_window():
    scene = GpuOptions(seed=1, max_model_len=4096, window_s=20.0)
    found, times = arrivals("bfcl", scene, 1.5)
    assert len(found) == len(times) == count(1.5, 20.0) == 30
    assert times == sorted(times)
    assert 0 < times[0] < times[-1] < 20.0


def test_a_faster_scene_has_more_of_the_same_programs():
    scene = GpuOptions(seed=1, max_model_len=4096, window_s=20.0)
    slow, fast = (arrivals("bfcl", scene, rate)[0] for rate in (0.5, 1.0))
    assert fast[: len(slow)] == slow


def test_arrivals_are_those_of_a_poisson_process():
    # Given their number, the times of a Poisson process are distributed like as many uniform draws.
    window, number = 100.0, 0
    early = 0
    for seed in range(40):
        times = arrivals("bfcl", GpuOptions(seed=seed, max_model_len=4096, window_s=window), 0.2)[1]
        number += len(times)
        early += sum(time < window / 4 for time in times)
    assert early / number == pytest.approx(0.25, abs=0.05)


def test_play_with_a_failed_call_is_an_error():
    good, bad = ProgramResult("a", 0.0), ProgramResult("b", 0.0, errors=["500: dead"])
    nothing_failed(Play([good]))
    with pytest.raises(EngineError, match="b failed: 500: dead"):
        nothing_failed(Play([good, bad]))


def test_output_tokens_are_those_of_all_calls():
    (program,) = programs("sharegpt", 0, 1, 4096)
    assert output_tokens(program) == sum(call.max_tokens for call in program.calls)
    assert GpuOptions(window_s=3.0, drain_s=4.0).longest_s == 7.0
