"""The cases of `weft bench fit --agreement`."""

from __future__ import annotations

import pytest
from weft_bench.agreement.scenes import CALM, CASES, scene

SYNTHETIC = [case for case in CASES if case.make]


@pytest.mark.parametrize("case", [*SYNTHETIC, CALM], ids=lambda case: case.name)
def test_programs_have_exact_lengths_that_fit_the_engine(case):
    played = scene(case, 1)
    assert played == scene(case, 1)
    assert played != scene(case, 2)
    assert len(played.programs) == len(played.arrivals) == case.programs
    shape = case.shape("8b-a100")
    for call in (call for program in played.programs for call in program.calls):
        assert call.prompt_tokens == sum(part.tokens for part in call.call.parts)
        # vLLM reserves a block.
        room = (shape.kv_blocks - 1) * shape.block_tokens
        assert call.prompt_tokens + call.max_tokens <= room
        # Answers do not return: the next prompt contains the recorded answer.
        assert call.call.answer == ""


def test_swap_and_scarce_play_the_same_scene():
    scarce, swap = (case for case in CASES if case.name in ("scarce", "swap"))
    assert scene(scarce, 3) == scene(swap, 3)
    assert swap.swap_gib > scarce.swap_gib == 0


def test_every_fifth_program_sends_eight_parallel_calls_three_times():
    programs = scene(CASES[0], 1).programs
    assert [len(program.calls) > 3 for program in programs[:7]] == (
        [False, True, False, False, False, False, True]
    )
    assert [call.call.after for call in programs[1].calls] == (
        [()] * 8 + [tuple(range(8))] * 8 + [tuple(range(8, 16))] * 8
    )
