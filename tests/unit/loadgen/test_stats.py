"""Statistics."""

from __future__ import annotations

import pytest

from loadgen.stats import mean, percentile


def test_percentiles_interpolate_between_ranks():
    values = [4.0, 1.0, 3.0, 2.0]
    assert [percentile(values, s) for s in (0, 0.5, 1)] == [1.0, 2.5, 4.0]
    assert percentile(values, 0.95) == pytest.approx(3.85)
    assert percentile([7.0], 0.99) == 7.0


def test_nothing_gives_zero():
    assert percentile([], 0.5) == mean([]) == 0.0
    assert mean([1.0, 2.0]) == 1.5
