"""Retries are a limited share of the calls."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from weft_gateway.policies.retry_budget import BURST, RetryBudget


def test_a_gateway_without_calls_can_retry_a_burst() -> None:
    budget = RetryBudget(0.1)
    assert [budget.take() for _ in range(101)] == [True] * 100 + [False]


def test_ten_calls_pay_for_one_retry() -> None:
    budget = RetryBudget(0.1)
    while budget.take():
        pass
    for _ in range(9):
        budget.add_call()
    assert not budget.take()
    for _ in range(2):  # 0.1 is not exact.
        budget.add_call()
    assert budget.take()
    assert not budget.take()


def test_a_share_of_zero_allows_no_retry() -> None:
    budget = RetryBudget(0.0)
    budget.add_call()
    assert not budget.take()


@given(st.lists(st.booleans(), max_size=2000), st.sampled_from([0.05, 0.1, 0.5, 1.0]))
def test_retries_never_exceed_the_burst_and_the_share_of_calls(
    steps: list[bool], ratio: float
) -> None:
    budget, calls, retries = RetryBudget(ratio), 0, 0
    for is_call in steps:
        if is_call:
            budget.add_call()
            calls += 1
        else:
            retries += budget.take()
        assert retries <= BURST + ratio * calls + 1e-6
