"""The duration of a step."""

from __future__ import annotations

import pytest
from weft_engine.emulated.cost_model import TICK_S, CostModel, on_tick

MODEL = CostModel(
    step_s=0.001,
    weights_s=0.010,
    prefill_token_s=0.0001,
    decode_sequence_s=0.0002,
    context_token_s=1e-7,
    swapped_block_s=1e-4,
    prefill_pair_s=1e-9,
)


@pytest.mark.parametrize(
    ("step", "seconds"),
    [
        ((0, 1, 0), 0.011),
        ((0, 1, 10_000), 0.012),
        ((50, 10, 0), 0.011),
        ((200, 10, 0), 0.023),
        ((200, 0, 0, 10_000_000), 0.031),
        ((50, 0, 0, 1_000_000), 0.011),
        ((0, 0, 0, 0, 30), 0.014),
    ],
)
def test_step_takes_the_longer_of_arithmetic_and_weights(step, seconds):
    assert MODEL.step(*step) == pytest.approx(seconds, abs=TICK_S)


def test_durations_are_whole_ticks_so_that_their_sums_are_exact():
    durations = [MODEL.step(n, n % 7, 13 * n) for n in range(1000)]
    assert all((d / TICK_S).is_integer() for d in durations)
    forwards, backwards = 0.0, 0.0
    for a, b in zip(durations, reversed(durations), strict=True):
        forwards, backwards = forwards + a, backwards + b
    assert forwards == backwards
    assert on_tick(0.1) == pytest.approx(0.1, abs=TICK_S)


def test_step_takes_at_least_one_tick():
    assert CostModel(step_s=1e-12).step(0, 0, 0) == TICK_S


@pytest.mark.parametrize("wrong", [{"step_s": -1.0}, {"step_s": float("nan")}, {"step_s": 0.0}])
def test_times_are_not_negative_and_a_step_is_not_free(wrong):
    with pytest.raises(ValueError, match="step_s"):
        CostModel(**wrong)
