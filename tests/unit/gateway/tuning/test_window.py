"""Windows and their test, compared with scipy."""

from __future__ import annotations

from random import Random

import pytest
from scipy import stats
from weft_gateway.tuning.window import p95, p_greater, summary


@pytest.mark.parametrize("seed", range(20))
def test_p_is_that_of_scipy(seed: int) -> None:
    rng = Random(seed)
    new = [rng.gauss(1.2, 1) for _ in range(rng.randint(2, 400))]
    old = [rng.expovariate(1) for _ in range(rng.randint(2, 400))]
    expected = stats.ttest_ind(new, old, equal_var=False, alternative="greater").pvalue
    assert p_greater(summary(new), summary(old)) == pytest.approx(expected, rel=1e-9)


def test_windows_without_variance_differ_with_certainty_or_not_at_all() -> None:
    low, high = summary([1.0] * 5), summary([2.0] * 5)
    assert (p_greater(high, low), p_greater(low, high), p_greater(low, low)) == (0.0, 1.0, 1.0)


def test_a_window_of_one_value_shows_nothing() -> None:
    assert p_greater(summary([9.0]), summary([1.0, 1.1, 1.2])) == 1.0
    assert summary([]) == summary(())


def test_p95_is_a_value_of_the_window() -> None:
    assert p95(range(1, 101)) == 95
    assert (p95([3.0]), p95([])) == (3.0, 0.0)
