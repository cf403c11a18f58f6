"""Cells and statistics of measurements."""

from __future__ import annotations

import math

import pytest
from weft_bench.studies.cells import Cell, Estimate, Mean, cells, estimate, measured


def _found() -> object:
    pairs = []
    for order, factor in (("fcfs", 2.0), ("plas", 1.0)):
        pairs += [(c, {"latency": factor * (c.seed + 1)}) for c in cells(3, order=order, rate=1.5)]
    return measured(pairs)


def test_settings_do_not_depend_on_their_order() -> None:
    assert cells(2, b=1, a="x") == cells(2, a="x", b=1)
    assert [cell.seed for cell in cells(2, a=1)] == [0, 1]


def test_cell_returns_its_settings() -> None:
    (cell,) = cells(1, order="plas", rate=2)
    assert (cell["order"], cell["rate"]) == ("plas", 2)
    with pytest.raises(KeyError):
        cell["burst"]


def test_estimates_are_means_with_intervals() -> None:
    found = _found().where(order="fcfs").estimate("latency")
    assert found.middle == pytest.approx(4.0)
    # Student's t with two degrees of freedom.
    assert found.half_width == pytest.approx(4.3027 * 2.0 / math.sqrt(3), rel=1e-4)


def test_ratios_compare_the_same_seed() -> None:
    found = _found()
    ratio = found.where(order="fcfs").ratio("latency", found.where(order="plas"))
    assert ratio.middle == pytest.approx(2.0)
    assert (ratio.low, ratio.high) == (pytest.approx(2.0), pytest.approx(2.0))


def test_mean_over_different_settings_is_refused() -> None:
    with pytest.raises(ValueError, match="several settings"):
        _found().estimate("latency")


def test_ratio_without_values_is_nan() -> None:
    found = _found()
    assert math.isnan(found.where(order="plas").ratio("latency", found.where(order="none")).middle)


def test_levels_have_the_order_of_the_cells() -> None:
    assert _found().levels("order") == ["fcfs", "plas"]
    assert _found().levels("nothing") == []


def test_integers_select_equal_floats() -> None:
    cell = Cell((("rate", 2.0),), 0)
    assert measured([(cell, {"x": 1.0})]).where(rate=2).estimate("x").middle == 1.0


# Weft and baseline by seed. Then, computed with scipy 1.17.1, exp of the mean of the logarithms
# of their ratios and of the ends of `scipy.stats.t.interval(0.95, n - 1, mean, sem)` of these.
_PAIRS = {
    "a tail": ([31.0, 44.9, 250.2], [22.5, 41.0, 78.0], 1.691524, 0.414667, 6.900125),
    "eight": (
        [35.2, 31.1, 40.7, 29.9, 52.4, 33.3, 38.0, 36.5],
        [49.3, 47.0, 44.1, 60.2, 51.8, 45.5, 39.9, 71.6],
        0.726778,
        0.578769,
        0.912637,
    ),
}


@pytest.mark.parametrize("name", _PAIRS)
def test_ratios_of_pairs_use_logarithms(name: str) -> None:
    ours, baseline, middle, low, high = _PAIRS[name]
    settings = cells(len(ours), order="a"), cells(len(ours), order="b")
    found = measured(
        (cell, {"x": value})
        for of, values in zip(settings, (ours, baseline), strict=True)
        for cell, value in zip(of, values, strict=True)
    )
    ratio = found.where(order="a").ratio("x", found.where(order="b"))
    assert (ratio.middle, ratio.low, ratio.high) == (
        pytest.approx(middle, rel=1e-4),
        pytest.approx(low, rel=1e-3),
        pytest.approx(high, rel=1e-3),
    )
    # The inverse ratio has the inverse interval.
    turned = found.where(order="b").ratio("x", found.where(order="a"))
    assert turned.low == pytest.approx(1 / ratio.high)
    assert ratio.below(1) == turned.above(1) == (name == "eight")


def _mean(middle: float, half: float, least: float = 0.0, most: float = 1.0) -> Mean:
    return Mean(middle, middle - half, middle + half, least, most)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (_mean(1.0, 0.012), "1.00 ± 0.01"),
        (_mean(1.0, 0.0), "1.00"),
        (_mean(0.004, 0.001), "0.00400 ± 0.00100"),
        (_mean(12345.6, 78.9), "12,346 ± 79"),
        (_mean(0.0, 0.0), "0.000"),
        (_mean(math.nan, 0.0), "-"),
        (_mean(0.0000123, 0.0), "0.00001"),
        # The interval reaches below zero, which no value can, so least and greatest are shown.
        (_mean(122.4, 215.0, 46.1, 219.6), "122 [46 to 220]"),
        (_mean(-0.61, 1.43, -2.0, 0.4), "-0.610 ± 1.430"),
        (Estimate(1.16, 0.921, 1.464), "1.16 (0.92 to 1.46)"),
        (Estimate(1.0, 1.0, 1.0), "1.00"),
        (Estimate(6.0, 5.9999, 6.0001), "6.00"),
        (Estimate(15.3, 0.042, 5573.1), "15.3 (0.04 to 5,573.1)"),
        (Estimate(math.nan, math.nan, math.nan), "-"),
    ],
)
def test_estimates_show_significant_digits(value: Estimate, shown: str) -> None:
    assert str(value) == shown


def test_one_seed_has_no_interval() -> None:
    found = estimate([3.0])
    assert (found.middle, found.low, found.high) == (3.0, 3.0, 3.0)
    assert math.isnan(estimate([]).middle)


def test_whole_interval_must_be_above_or_below() -> None:
    assert Estimate(1.2, 1.01, 1.4).above(1)
    assert Estimate(0.8, 0.7, 0.99).below(1)
    for none in (
        Estimate(1.2, 0.9, 1.6),
        Estimate(1.0, 1.0, 1.0),
        Estimate(math.nan, math.nan, math.nan),
    ):
        assert not none.above(1)
        assert not none.below(1)
