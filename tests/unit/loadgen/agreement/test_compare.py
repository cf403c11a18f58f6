"""Statistics of `weft bench fit --agreement`."""

from __future__ import annotations

import pytest
from support.agreement import pair, played
from weft_bench.agreement.compare import apart, reversals, tau


def test_the_ratio_is_that_of_the_means_over_seeds():
    one = pair([2.0, 4.0], [[1.0, 3.0], [2.0, 2.0]])
    assert (one.emulated_s, one.virtual_s, one.ratio) == (3.0, 2.0, 1.5)


def test_noise_is_that_of_one_emulated_play_beside_the_mean_of_the_virtual_ones():
    # Variance 2 of the first seed and 0 of the second; two plays for each seed.
    one = pair([2.0, 2.0], [[1.0, 3.0], [2.0, 2.0]])
    assert one.variance == pytest.approx((2 + 0) * (1 + 1 / 2) / 2**2)
    assert one.noise == pytest.approx(1.96 * 0.75**0.5 / 2)
    # More seeds average the noise out.
    many = pair([2.0] * 8, [[1.0, 3.0], [2.0, 2.0]] * 4)
    assert many.noise == pytest.approx(one.noise / 2)


def test_tau_compares_rankings():
    same = {"a": pair([1.0], [[3.0, 3.0]]), "b": pair([2.0], [[4.0, 4.0]])}
    assert tau(same) == 1.0
    assert tau({**same, "b": pair([2.0], [[2.0, 2.0]])}) == -1.0


@pytest.mark.parametrize(
    ("emulated", "virtual", "found"),
    [
        # The noise of the difference is 1.96 * sqrt(0.02 * 1.5 + 0) = 0.34.
        ((2.0, 3.0), ([2.9, 3.1], [2.0, 2.0]), ["a and b"]),
        ((2.0, 3.0), ([2.1, 2.3], [2.0, 2.0]), []),
        ((2.0, 2.2), ([2.9, 3.1], [2.0, 2.0]), []),
        ((2.0, 3.0), ([1.9, 2.1], [3.0, 3.0]), []),
    ],
)
def test_a_pair_is_reversed_if_both_differences_exceed_the_noise(emulated, virtual, found):
    pairs = {"a": pair([emulated[0]], [virtual[0]]), "b": pair([emulated[1]], [virtual[1]])}
    assert reversals(pairs) == found


def test_apart_and_lateness_are_shares():
    assert apart([2.0, 2.1, 2.05]) == pytest.approx(0.05)
    assert played(1.0, busy_s=4.0, late_s=0.1).late_share == 0.025
    assert played(1.0).late_share == 0.0
