"""A bucket refills up to one minute's worth and reports the waiting time of a cost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft_gateway.policies.token_bucket import Bucket, refilled, wait_s


def test_a_new_bucket_is_full() -> None:
    assert refilled(None, 60, 5.0) == Bucket(60.0, 5.0)


def test_bucket_refills_at_its_rate_up_to_its_capacity() -> None:
    assert refilled(Bucket(0.0, 0.0), 60, 10.0).level == pytest.approx(10.0)
    assert refilled(Bucket(0.0, 0.0), 60, 1000.0).level == 60.0


def test_backward_clock_removes_nothing() -> None:
    assert refilled(Bucket(7.0, 100.0), 60, 50.0).level == 7.0


def test_cost_above_the_capacity_waits_for_a_full_bucket() -> None:
    assert wait_s(Bucket(60.0, 0.0), 500.0, 60) == 0.0
    assert wait_s(Bucket(30.0, 0.0), 500.0, 60) == pytest.approx(30.0)


@given(
    level=st.floats(-1000, 1000),
    cost=st.floats(0, 1000),
    per_minute=st.integers(1, 1000),
)
def test_cost_fits_after_the_reported_wait(level: float, cost: float, per_minute: int) -> None:
    bucket = Bucket(min(level, per_minute), 0.0)
    later = wait_s(bucket, cost, per_minute)
    after = refilled(bucket, per_minute, later)
    assert wait_s(after, cost, per_minute) == pytest.approx(0.0, abs=1e-6)
