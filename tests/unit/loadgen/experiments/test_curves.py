"""Load at equal latency."""

from __future__ import annotations

from math import isnan

import pytest

from loadgen.experiments.curves import load_at, throughput_ratio

_CURVE = [(1.0, 0.1), (2.0, 0.3), (4.0, 1.1)]


@pytest.mark.parametrize(
    ("latency", "load"), [(0.1, 1.0), (0.2, 1.5), (0.3, 2.0), (0.7, 3.0), (1.1, 4.0), (9.0, 4.0)]
)
def test_between_points_are_straight_lines(latency: float, load: float) -> None:
    assert load_at(latency, _CURVE) == pytest.approx(load)


def test_a_latency_that_is_never_reached_has_no_load() -> None:
    assert isnan(load_at(0.05, _CURVE))


def test_of_a_curve_with_a_dent_the_greatest_load_counts() -> None:
    assert load_at(0.3, [(1.0, 0.2), (2.0, 0.5), (3.0, 0.2), (4.0, 0.4)]) == pytest.approx(3.5)


def test_throughput_is_compared_at_one_latency() -> None:
    slower = [(1.0, 0.3), (2.0, 1.1)]
    assert throughput_ratio(_CURVE, slower, 0.3) == (pytest.approx(2.0), False)


def test_what_lies_beyond_the_heaviest_load_is_a_lower_bound() -> None:
    assert throughput_ratio([(1.0, 0.1), (2.0, 0.2)], _CURVE, 0.3) == (pytest.approx(1.0), True)
