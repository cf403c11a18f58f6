"""Seconds of calls."""

from __future__ import annotations

import pytest
from support.planning import STEPS, replica
from weft_gateway.policies.costs import EngineCosts, StepCosts
from weft_run.plan.costs import Replica, call_seconds, relative_speeds


def test_calls_beside_each_other_share_a_step() -> None:
    alone, full = (call_seconds(STEPS, 0, 100, 10, beside) for beside in (1, 32))
    assert full < alone / 10
    assert call_seconds(STEPS, 50, 100, 10, 1) == pytest.approx(alone + 50 * STEPS.prefill_token_s)


def test_replica_fits_calls_into_slots_and_cache() -> None:
    one = replica("a", kv_tokens=10_000)
    assert one.fits(100) == 32
    assert one.fits(1000) == 10
    assert one.fits(1e9) == 1
    assert replica("a", models=["m"]).serves("m")
    assert not replica("a", models=["m"]).serves("n")


def test_speeds_are_relative_to_the_fastest_replica() -> None:
    fast, slow = replica("a"), replica("b", slow=2.0)
    assert relative_speeds([slow, fast]) == {"a": 1.0, "b": pytest.approx(0.5)}
    assert relative_speeds([fast, replica("b")]) == {"a": 1.0, "b": 1.0}
    # Its slots stay empty for lack of cache.
    assert relative_speeds([fast, replica("b", kv_tokens=5000)])["b"] < 0.5


def test_a_replica_without_costs_has_no_speed() -> None:
    assert relative_speeds([]) == {}
    free = Replica("b", EngineCosts(StepCosts(together=32), 50_000))
    assert relative_speeds([replica("a"), free]) == {}
