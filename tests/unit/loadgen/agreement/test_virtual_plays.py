"""The cases of `weft bench fit --agreement` in virtual time."""

from __future__ import annotations

import pytest
from weft_bench.agreement.compare import Delay
from weft_bench.agreement.scenes import CALM, CASES, scene
from weft_bench.agreement.virtual_plays import play

pytestmark = [pytest.mark.engine, pytest.mark.slow]

ENGINES = {case.name: case for case in (*CASES, CALM)}


def of(name, order, number=0, call_s=0.006, token_s=0.0):
    case = ENGINES[name]
    shape = case.shape("8b-a100")
    return play(scene(case, 0), order, shape, case.swap_gib, Delay(call_s, token_s), number)


def test_each_number_has_other_delays():
    assert of("scarce", "fcfs") == of("scarce", "fcfs")
    assert of("scarce", "fcfs").program_s != of("scarce", "fcfs", 1).program_s


def test_a_long_prompt_is_delayed_by_each_token():
    none, each = (of("calm", "fcfs", token_s=token_s) for token_s in (0.0, 1e-4))
    assert each.program_s > none.program_s + 0.1


def test_the_cases_preempt_swap_and_evict():
    assert of("plentiful", "fcfs").preemptions == 0
    scarce, swap = of("scarce", "fcfs"), of("swap", "fcfs")
    assert min(scarce.preemptions, swap.preemptions) > 0
    assert swap.moved_blocks > scarce.moved_blocks == 0
    # Both play the same dialogues; one has KV blocks for all contexts.
    assert 0.5 < of("warm", "fcfs").hit_rate < of("calm", "fcfs").hit_rate


def test_orders_differ_with_few_slots():
    fcfs, plas = of("plentiful", "fcfs"), of("plentiful", "plas")
    assert fcfs.program_s > 1.1 * plas.program_s
