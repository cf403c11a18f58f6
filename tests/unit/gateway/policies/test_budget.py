"""Budgets of calls: equation 5 of HexGen-Flow over the remaining path."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft_gateway.policies.budget import budget, is_late

SECONDS = st.floats(0, 1e5, allow_nan=False)
COUNT = st.integers(0, 500)


@given(SECONDS, st.lists(st.tuples(SECONDS, COUNT, SECONDS), max_size=30))
def test_budgets_along_a_path_never_exceed_the_time_left(left, calls) -> None:
    """Each call uses up its budget, whatever is predicted for it and for the later calls."""
    spent = 0.0
    for cost, remaining, later in calls:
        part = budget(left - spent, cost, remaining, later)
        assert part >= 0
        spent += part
        assert spent <= left * (1 + 1e-9)


@given(st.floats(-1e5, 0), SECONDS, COUNT, SECONDS)
def test_budget_of_a_late_call_is_zero(left, cost, remaining, later) -> None:
    assert budget(left, cost, remaining, later) == 0
    assert is_late(left, cost, remaining, later)


@given(SECONDS, st.floats(0.001, 1e5), COUNT)
def test_later_calls_never_raise_a_budget(left, cost, remaining) -> None:
    assert budget(left, cost, remaining + 1, cost) <= budget(left, cost, remaining, cost)


def test_costly_call_gets_the_larger_part() -> None:
    assert budget(90.0, 6.0, 3, 1.0) == pytest.approx(60.0)
    assert budget(30.0, 1.0, 2, 1.0) == pytest.approx(10.0)


def test_last_call_gets_all_the_time_left() -> None:
    assert budget(8.0, 0.5, 0, 0.7) == 8.0


def test_equal_parts_without_predictions() -> None:
    assert budget(9.0, 0.0, 2, 0.0) == budget(9.0, 0.0, 2, 5.0) == 3.0


def test_path_that_does_not_fit_is_late() -> None:
    assert is_late(5.0, 2.0, 2, 2.0)
    assert not is_late(6.0, 2.0, 2, 2.0)
