"""The remaining work of programs."""

from __future__ import annotations

import pytest
from weft_bench.drive.work import PROMPT_TOKENS_A_STEP, STEP_S, costs
from weft_bench.workloads.cutting import ReadyCall, ReadyProgram
from weft_bench.workloads.schema import TraceCall


def program(*calls):
    ready = tuple(ReadyCall(TraceCall(after=after), p, out) for p, out, after in calls)
    return ReadyProgram("p", ready, cut=False, trimmed=False)


def test_answer_costs_a_step_per_token_and_prompt_its_new_tokens():
    width = PROMPT_TOKENS_A_STEP
    chain = program((2 * width, 10, None), (3 * width, 10, None), (width, 5, None))
    assert costs(chain) == pytest.approx([12 * STEP_S, 11 * STEP_S, 5 * STEP_S])


def test_longest_needed_prompt_counts_as_cached():
    width = PROMPT_TOKENS_A_STEP
    joined = program((width, 1, ()), (3 * width, 1, ()), (4 * width, 1, (0, 1)))
    assert costs(joined) == pytest.approx([2 * STEP_S, 4 * STEP_S, 2 * STEP_S])
