"""A program alone on a replica, compared with sums by hand."""

from __future__ import annotations

import pytest
from weft_bench.costs.model import CostModel
from weft_bench.costs.presets import EngineShape
from weft_bench.simulated.alone import Lone, alone

STEP = 0.25
# Each step takes a quarter of a second, with up to 64 prompt tokens.
SHAPE = EngineShape(CostModel(STEP), slots=8, step_tokens=64, kv_blocks=64, block_tokens=16)


def prompt(count: int, of: bytes = b"abcd") -> bytes:
    return of * count


def test_a_chain_takes_its_steps_and_its_gaps():
    chain = [Lone(prompt(16), 4, (), 2.0), Lone(prompt(16), 2, (0,), 9.0)]
    # The gap after the last answer does not count.
    assert alone(chain, SHAPE) == pytest.approx(4 * STEP + 2.0 + 2 * STEP)


def test_calls_side_by_side_share_steps_and_a_join_waits_for_the_longer_gap():
    calls = [
        Lone(prompt(8), 2, (), 1.0),
        Lone(prompt(8, b"efgh"), 4, (), 0.5),
        Lone(prompt(8), 1, (0, 1), 0.0),
    ]
    assert alone(calls, SHAPE) == pytest.approx(max(2 * STEP + 1.0, 4 * STEP + 0.5) + STEP)


def test_repeated_prompt_is_in_the_cache():
    cold = alone([Lone(prompt(320), 1, (), 0.0)], SHAPE)
    again = alone([Lone(prompt(320), 1, (), 0.0), Lone(prompt(320), 1, (0,), 0.0)], SHAPE)
    assert cold == pytest.approx(5 * STEP)
    assert again == pytest.approx(6 * STEP)


def test_a_call_that_never_fits_is_refused():
    with pytest.raises(ValueError, match="never fits"):
        alone([Lone(prompt(64 * 16), 1, (), 0.0)], SHAPE)
