"""Admission of programs by their targets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft_gateway.model.slo import CallBudget, Scope
from weft_gateway.policies.feasible import can_be_met, retry_after_s


def path(left_s: float, path_s: float, p90_s: float = 0.0) -> CallBudget:
    """A first call, with the median and the 90th percentile of its program's path. Its own stage
    makes the path look short.
    """
    return CallBudget(
        "report", Scope.PROGRAM, 90.0, 1e9, left_s, left_s, path_s, 0.0, path_s, 0, False,
        path_s / 2, path_s, max(p90_s, path_s),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("wait_s", "left_s", "expected"),
    [
        # On an idle replica, a refusal would help no other program.
        (0.0, 6.0, True),
        (0.0, 5.9, False),
        # The margin grows with the wait, up to the 90th percentile.
        (1.0, 7.9, False),
        (1.0, 8.0, True),
        (20.0, 29.9, False),
        (20.0, 30.0, True),
    ],
)
def test_margin_of_a_path_is_at_most_the_wait(wait_s, left_s, expected):
    assert can_be_met(path(left_s, 6.0, 10.0), wait_s) is expected


def test_program_of_unknown_cost_is_served():
    assert can_be_met(path(0.0, 0.0), 100.0)


def test_retry_comes_when_the_wait_is_short_enough():
    # 12 s of waiting may be 4 s at most.
    assert retry_after_s(path(10.0, 6.0), 12.0) == 8
    # Even without any wait, the target cannot be met.
    assert retry_after_s(path(10.0, 60.0), 2.5) == 3
    assert retry_after_s(path(10.0, 60.0), 0.0) == 1


seconds = st.floats(0, 1e12)


@given(seconds, seconds, seconds)
def test_retry_is_bounded(left_s, path_s, wait_s):
    assert 1 <= retry_after_s(path(left_s, path_s), wait_s) <= 3600


@given(seconds, seconds, seconds)
def test_feasible_program_is_always_served(left_s, path_s, wait_s):
    assert can_be_met(path(left_s, path_s), wait_s) or left_s < wait_s + path_s
