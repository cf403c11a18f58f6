"""Statistics."""

from __future__ import annotations

from statistics import stdev

import pytest
from weft_bench.stats import half_width, mean, percentile


def test_percentiles_interpolate_between_ranks():
    values = [4.0, 1.0, 3.0, 2.0]
    assert [percentile(values, s) for s in (0, 0.5, 1)] == [1.0, 2.5, 4.0]
    assert percentile(values, 0.95) == pytest.approx(3.85)
    assert percentile([7.0], 0.99) == 7.0


def test_empty_input_gives_zero():
    assert percentile([], 0.5) == mean([]) == 0.0
    assert mean([1.0, 2.0]) == 1.5


# From tables of Student's t, two-sided 95%.
@pytest.mark.parametrize(("values", "t"), [(3, 4.303), (10, 2.262), (11, 2.228), (31, 2.042)])
def test_interval_has_the_width_of_students_t(values, t):
    some = [float(number % 2) for number in range(values)]
    assert half_width(some) == pytest.approx(t * stdev(some) / values**0.5, rel=2e-3)
