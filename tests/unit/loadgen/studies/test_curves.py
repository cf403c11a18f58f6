"""Load at equal latency."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from typing import Any

import pytest
from weft_bench.studies.cells import Cell, Measured, measured
from weft_bench.studies.curves import doubled, load_at, throughput_ratio

_CURVE = [(1.0, 0.1), (2.0, 0.3), (4.0, 1.1)]


@pytest.mark.parametrize(
    ("latency", "load"), [(0.1, 1.0), (0.2, 1.5), (0.3, 2.0), (0.7, 3.0), (1.1, 4.0), (9.0, 4.0)]
)
def test_curve_is_linear_between_points(latency: float, load: float) -> None:
    assert load_at(latency, _CURVE) == pytest.approx(load)


def test_unreached_latency_has_no_load() -> None:
    assert isnan(load_at(0.05, _CURVE))


def test_greatest_load_counts_for_a_non_monotonic_curve() -> None:
    assert load_at(0.3, [(1.0, 0.2), (2.0, 0.5), (3.0, 0.2), (4.0, 0.4)]) == pytest.approx(3.5)


_LEVEL = {0: 0.3, 1: 0.3}


def _found(*lines: Sequence[tuple[float, float]]) -> Measured:
    """Return measurements with one curve per seed."""
    return measured(
        (Cell((("rate", rate),), seed), {"latency": latency})
        for seed, line in enumerate(lines)
        for rate, latency in line
    )


def test_throughput_is_compared_at_one_latency_per_seed() -> None:
    slower = [(1.0, 0.3), (2.0, 1.1)]
    found = throughput_ratio(_found(_CURVE, _CURVE), _found(slower, slower), _LEVEL, "latency")
    assert (found.ratio.middle, found.bound) == (pytest.approx(2.0), "")
    assert str(found).startswith("2.00")


_FAST = [(1.0, 0.1), (2.0, 0.2)]
_SLOW = [(1.0, 0.5), (2.0, 0.9)]


@pytest.mark.parametrize(
    ("ours", "theirs", "shown"),
    [
        (_FAST, _CURVE, "≥ 1.00"),
        (_CURVE, _SLOW, "≥ 2.00"),
        (_FAST, _SLOW, "≥ 2.00"),
        (_SLOW, _CURVE, "≤ 0.500"),
        (_CURVE, _FAST, "≤ 1.00"),
        (_FAST, _FAST, "not measured"),
        (_SLOW, _SLOW, "not measured"),
    ],
)
def test_unmeasured_load_gives_a_bound(ours: Any, theirs: Any, shown: str) -> None:
    found = throughput_ratio(_found(ours), _found(theirs), _LEVEL, "latency")
    assert str(found) == shown


def test_opposite_bounds_give_no_ratio() -> None:
    found = throughput_ratio(_found(_FAST, _SLOW), _found(_CURVE, _CURVE), _LEVEL, "latency")
    assert str(found) == "not measured"


def test_compared_latency_is_twice_that_of_the_lightest_load() -> None:
    assert doubled(_found(_CURVE, [(4.0, 2.0), (2.0, 0.5)]), "latency") == {0: 0.2, 1: 1.0}
