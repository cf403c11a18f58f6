"""Cells, and what is made of measurements."""

from __future__ import annotations

import math

import pytest

from loadgen.experiments.cells import Cell, Estimate, cells, estimate, measured


def _found() -> object:
    pairs = []
    for order, factor in (("fcfs", 2.0), ("plas", 1.0)):
        pairs += [(c, {"latency": factor * (c.seed + 1)}) for c in cells(3, order=order, rate=1.5)]
    return measured(pairs)


def test_settings_do_not_depend_on_the_order_in_which_they_are_written() -> None:
    assert cells(2, b=1, a="x") == cells(2, a="x", b=1)
    assert [cell.seed for cell in cells(2, a=1)] == [0, 1]


def test_a_cell_tells_its_settings() -> None:
    (cell,) = cells(1, order="plas", rate=2)
    assert (cell.text("order"), cell.number("rate")) == ("plas", 2.0)
    with pytest.raises(KeyError):
        cell["burst"]


def test_estimates_are_means_with_intervals() -> None:
    found = _found().where(order="fcfs").estimate("latency")
    assert found.mean == pytest.approx(4.0)
    # Student's t with two degrees of freedom.
    assert found.half_width == pytest.approx(4.303 * 2.0 / math.sqrt(3))


def test_ratios_are_of_the_same_seed() -> None:
    found = _found()
    ratio = found.where(order="fcfs").ratio("latency", found.where(order="plas"))
    assert ratio.mean == pytest.approx(2.0)
    assert ratio.half_width == pytest.approx(0.0, abs=1e-12)


def test_a_mean_over_different_settings_is_refused() -> None:
    with pytest.raises(ValueError, match="several settings"):
        _found().estimate("latency")


def test_a_ratio_of_nothing_is_no_number() -> None:
    found = _found()
    assert math.isnan(found.where(order="plas").ratio("latency", found.where(order="none")).mean)


def test_cells_are_known_by_settings_that_they_lack() -> None:
    found = measured((cell, {"x": 1.0}) for cell in [*cells(1, a=1), *cells(1, a=1, b=True)])
    assert list(found.like({}, ["b"]).values) == cells(1, a=1)
    assert list(found.like({"b": True}, ["b"]).values) == cells(1, a=1, b=True)
    assert not found.like({}, ["a"])


def test_levels_stand_in_the_order_of_the_cells() -> None:
    assert _found().levels("order") == ["fcfs", "plas"]
    assert _found().levels("nothing") == []


def test_whole_numbers_select_what_fractions_were_measured_with() -> None:
    cell = Cell((("rate", 2.0),), 0)
    assert measured([(cell, {"x": 1.0})]).where(rate=2).estimate("x").mean == 1.0


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (Estimate(1.0, 0.012), "1.00 ± 0.01"),
        (Estimate(1.0, 0.0), "1.00"),
        (Estimate(0.004, 0.001), "0.00400 ± 0.00100"),
        (Estimate(12345.6, 78.9), "12,346 ± 79"),
        (Estimate(0.0, 0.0), "0.000"),
        (Estimate(math.nan, 0.0), "-"),
        (Estimate(0.0000123, 0.0), "0.00001"),
    ],
)
def test_estimates_show_the_digits_that_count(value: Estimate, shown: str) -> None:
    assert str(value) == shown


def test_one_seed_has_no_interval() -> None:
    assert estimate([3.0]) == Estimate(3.0, 0.0)
