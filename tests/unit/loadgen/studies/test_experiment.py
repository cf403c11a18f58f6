"""Goals of an experiment in words."""

from __future__ import annotations

from math import nan

import pytest
from weft_bench.studies.cells import Estimate
from weft_bench.studies.experiment import Goal


@pytest.mark.parametrize(
    ("found", "less", "expected"),
    [
        (Estimate(0.5, 0.4, 0.6), True, "met: x 0.500 (0.400 to 0.600), goal at most 0.7"),
        (Estimate(0.8, 0.7, 0.9), True, "missed: x 0.800 (0.700 to 0.900), goal at most 0.7"),
        (Estimate(0.8, 0.75, 0.9), False, "met: x 0.800 (0.750 to 0.900), goal at least 0.7"),
        (Estimate(nan, nan, nan), True, "missed: x -, goal at most 0.7"),
    ],
)
def test_a_goal_is_met_by_the_middle(found: Estimate, less: bool, expected: str) -> None:
    assert str(Goal("x", found, 0.7, less)) == expected


def test_a_goal_that_the_interval_misses_says_so() -> None:
    text = str(Goal("x", Estimate(0.6, 0.5, 0.8), 0.7))
    assert text.startswith("met: x")
    assert text.endswith("by the mean and not by the interval")
