"""Quantiles of recent calls, and the wider kinds that stand for rare ones."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft_gateway.policies.recent import (
    ALL,
    MIN_SAMPLES,
    Recent,
    RecentCalls,
    Sample,
    levels,
    upper,
)


def calls(kind: str, *outputs: int, error: float = 0.0) -> RecentCalls:
    found = RecentCalls()
    for output in outputs:
        found.add(kind, Sample(1, output, 1.0, 1.0, error))
    return found


def test_kind_backs_off_name_by_name() -> None:
    assert levels("m\nkind\nstage") == ("m\nkind\nstage", "m\nkind", "m", ALL)
    assert levels(ALL) == (ALL,)


@pytest.mark.parametrize(
    ("asked", "median"), [("m\nk\ns", 1), ("m\nk\nnew", 1), ("m\nnew\ns", 5), ("new\nk\ns", 9)]
)
def test_rare_kind_uses_the_wider_one_with_enough_samples(asked: str, median: float) -> None:
    found = calls("m\nk\ns", *[1] * MIN_SAMPLES)
    for kind, output, number in (("m\nother\ns", 5, 30), ("another\nk\ns", 9, 64)):
        for _ in range(number):
            found.add(kind, Sample(1, output, 1.0, 1.0, 0.0))
    typical = found.typical(asked)
    assert typical is not None
    assert typical.output == median


def test_nothing_is_typical_before_the_first_call() -> None:
    assert RecentCalls().typical("m\nk\ns") is None


@given(st.integers(1, 300), st.floats(0.01, 0.99))
def test_upper_is_the_order_statistic_that_covers_the_next_sample(count: int, share: float) -> None:
    """Of count + 1 exchangeable samples, the last one has every rank with the same probability."""
    rank = upper(range(1, count + 1), share)
    assert rank >= min(share * (count + 1), count) - 1e-9
    assert rank < share * (count + 1) + 1


def test_upper_quantile_covers_nine_of_ten() -> None:
    """Long-tailed errors of a thousand calls, each compared with the quantile before it."""
    rng, recent, covered, seen = random.Random(1), Recent(), 0, 0
    for number in range(1000):
        error = rng.lognormvariate(0.0, 1.0)
        if number >= MIN_SAMPLES:
            seen += 1
            covered += error <= recent.typical().error_p90
        recent.add(Sample(1, 1, 1.0, 1.0, error))
    assert 0.87 <= covered / seen <= 0.93


def test_error_needs_enough_predictions() -> None:
    few = calls("k", *[1] * (MIN_SAMPLES - 1), error=2.0).typical("k")
    enough = calls("k", *[1] * MIN_SAMPLES, error=2.0).typical("k")
    assert few is not None
    assert enough is not None
    assert (few.error_p90, enough.error_p90) == (0.0, 2.0)


def test_quantiles_follow_within_an_eighth_of_the_samples() -> None:
    recent = Recent()
    for _ in range(64):
        recent.add(Sample(1, 1, 1.0, 1.0, 0.0))
    assert recent.typical().output_p90 == 1
    for _ in range(8):
        recent.add(Sample(1, 7, 1.0, 1.0, 0.0))
    assert recent.typical().output_p90 == 7
