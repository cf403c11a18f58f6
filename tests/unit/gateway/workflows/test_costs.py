"""Seconds of calls."""

from __future__ import annotations

import pytest
from support.planning import STEPS, replica
from weft_gateway.workflows.costs import call_seconds


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
