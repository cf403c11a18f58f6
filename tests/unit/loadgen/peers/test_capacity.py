"""The capacity of emulated replicas, compared with a sum by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.peers import SHAPE, replicas
from weft_bench.peers.capacity import capacity
from weft_bench.workloads.cutting import ReadyCall, ReadyProgram
from weft_bench.workloads.schema import Part, TraceCall
from weft_engine.emulated.cost_model import CostModel

pytestmark = [pytest.mark.engine, pytest.mark.slow]

STEP = 0.25


def program(number: int, answer: int) -> ReadyProgram:
    call = TraceCall(parts=(Part(f"prompt-{number}", 16, "user"),))
    return ReadyProgram(f"p{number}", (ReadyCall(call, 16, answer),), cut=False, trimmed=False)


def test_capacity_is_the_rate_of_the_first_four_fifths_of_a_burst_over_all_replicas():
    shape = replace(SHAPE, cost=CostModel(STEP), slots=1, step_tokens=64, kv_blocks=64)
    there = replace(replicas(2.0), shapes=(shape, shape))
    # Two replicas with one slot play five programs each: four steps each, in turn. The last
    # program of one of them is long and does not count.
    programs = [program(number, 4) for number in range(9)] + [program(9, 40)]
    assert capacity(programs, there, 4.0) == pytest.approx(8 / (4 * 4 * STEP))
