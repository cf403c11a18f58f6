"""What programs still cost."""

from __future__ import annotations

import pytest
from weft_bench.drive.work import PROMPT_TOKENS_A_STEP, STEP_S, costs
from weft_bench.workloads.cutting import ReadyCall, ReadyProgram
from weft_bench.workloads.schema import TraceCall


def program(*calls):
    ready = tuple(ReadyCall(TraceCall(after=after), p, out) for p, out, after in calls)
    return ReadyProgram("p", ready, cut=False, trimmed=False)


def test_an_answer_costs_a_step_a_token_and_a_prompt_what_is_new_of_it():
    width = PROMPT_TOKENS_A_STEP
    chain = program((2 * width, 10, None), (3 * width, 10, None), (width, 5, None))
    assert costs(chain) == pytest.approx([12 * STEP_S, 11 * STEP_S, 5 * STEP_S])


def test_the_longest_prompt_that_a_call_waits_for_is_known():
    width = PROMPT_TOKENS_A_STEP
    joined = program((width, 1, ()), (3 * width, 1, ()), (4 * width, 1, (0, 1)))
    assert costs(joined) == pytest.approx([2 * STEP_S, 4 * STEP_S, 2 * STEP_S])
