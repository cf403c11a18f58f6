"""Distributions."""

from __future__ import annotations

from random import Random

import pytest
from weft_bench.stats import mean, percentile
from weft_bench.workloads.draws import LogitShare, LongTail, TwoPhase, pick, popularity


@pytest.mark.parametrize(
    "tail", [LongTail(6.66, 1.2, 0.5, 80.49), LongTail(256, 1.5, 2, 6000), LongTail(20, 0.4, 1, 60)]
)
def test_a_long_tail_has_its_mean_and_stays_within_its_bounds(tail):
    rng = Random(1)
    values = [tail.draw(rng) for _ in range(40_000)]
    assert mean(values) == pytest.approx(tail.mean, rel=0.03)
    assert tail.least <= min(values) <= max(values) <= tail.most
    assert percentile(values, 0.5) < tail.mean, "most are shorter than the mean"


@pytest.mark.parametrize("wrong", [(5, 1.0, 6, 10), (5, 1.0, 0, 10), (5, 0, 1, 10), (5, 1, 10, 1)])
def test_invalid_long_tail_is_refused(wrong):
    with pytest.raises(ValueError, match="long tail"):
        LongTail(*wrong)


@pytest.mark.parametrize("moments", [(1.09, 1.7, 0.6), (0.29, 1.14, 0.1)])
def test_two_phases_have_their_mean_and_their_variance(moments):
    rng = Random(2)
    phases = TwoPhase(*moments)
    values = [phases.draw(rng) for _ in range(200_000)]
    middle = mean(values)
    assert middle == pytest.approx(phases.mean, rel=0.03)
    assert mean([(v - middle) ** 2 for v in values]) == pytest.approx(phases.variance, rel=0.08)


@pytest.mark.parametrize("wrong", [(1.0, 0.5, 0.3), (1.0, 2.0, 1.0), (1.0, 2.0, 0.0)])
def test_invalid_two_phases_are_refused(wrong):
    with pytest.raises(ValueError, match="exponentials"):
        TwoPhase(*wrong)


def test_share_is_between_zero_and_one():
    rng = Random(3)
    values = [LogitShare(0.32, 1.0).draw(rng) for _ in range(20_000)]
    assert 0 < min(values) < max(values) < 1
    assert percentile(values, 0.5) == pytest.approx(0.32, abs=0.01)


def test_pick_follows_popularity():
    shares = popularity(3)
    assert shares == pytest.approx([6 / 11, 3 / 11, 2 / 11])
    rng = Random(4)
    picked = [pick(rng, shares) for _ in range(11_000)]
    assert [picked.count(n) / 1000 for n in range(3)] == pytest.approx([6, 3, 2], rel=0.1)
