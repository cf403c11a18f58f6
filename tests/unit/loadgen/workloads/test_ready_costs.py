"""The costs of the calls of a program, alone."""

from __future__ import annotations

import pytest
from weft_bench.workloads.cutting import ReadyCall, ReadyProgram
from weft_bench.workloads.schema import TraceCall
from weft_engine.emulated.cost_model import CostModel

COST = CostModel(step_s=1.0, prefill_token_s=0.01)


def costs(*calls):
    ready = tuple(ReadyCall(TraceCall(after=after), p, out) for p, out, after in calls)
    return ReadyProgram("p", ready, cut=False, trimmed=False).costs(COST)


def test_answer_costs_a_step_per_token_and_prompt_its_new_tokens():
    chain = costs((200, 10, None), (300, 10, None), (100, 5, None))
    assert chain == pytest.approx([13.0, 12.0, 6.0])


def test_longest_needed_prompt_counts_as_cached():
    joined = costs((100, 1, ()), (300, 1, ()), (400, 1, (0, 1)))
    assert joined == pytest.approx([3.0, 5.0, 3.0])
