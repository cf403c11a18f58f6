"""Tools get their published share of the requests' real time."""

from __future__ import annotations

import pytest
from weft_bench.overlap.player import Plan, Result, slowdown
from weft_bench.overlap.shape import generate

PLANS = [Plan(request, (), 2.0, 8, 0.5) for request in generate(3, 9)]


def tools_s(plan, slower):
    return sum(max(each) for each in plan.work(slower).seconds)


def test_tools_take_their_share_of_the_time_that_requests_take():
    for plan in PLANS:
        took = tools_s(plan, 1.5)
        assert took / (1.5 * 2.0 + took) == pytest.approx(plan.request.tool_share)
        assert plan.e2e_s(1.5) == pytest.approx(3.0 + took + 0.5)


def test_slowdown_is_the_median_of_times_without_tools():
    factors = (1.0, 1.2, 1.4, 1.6, 9.0, 1.1, 1.3, 1.5, 1.7)
    results = [
        Result(plan.request.number, ftr_s=2.0 * factor + 7.0, tool_s=7.0)
        for plan, factor in zip(PLANS, factors, strict=True)
    ]
    assert slowdown(PLANS, results) == pytest.approx(1.4)
    results[4].errors.append("lost")
    assert slowdown(PLANS, results) == pytest.approx(1.35)


def test_slowdown_requires_an_answer():
    results = [Result(plan.request.number, errors=["ReadError: gone"]) for plan in PLANS]
    with pytest.raises(ValueError, match="ReadError: gone"):
        slowdown(PLANS, results)
