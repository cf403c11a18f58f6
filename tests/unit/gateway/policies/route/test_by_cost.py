"""Balancers by predicted costs, on replicas of unequal speed."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft_gateway.model import Program, ProgramKey, ReplicaCost, ReplicaView, RouteRequest
from weft_gateway.policies.route.registry import ROUTERS, build

LONG = 5000


def cost(s: float, *, wait=0.0, queue=None, cached=0, high=None, busy=None) -> ReplicaCost:
    """A call of `s` seconds. Its replica's mean call takes as long."""
    queue = wait if queue is None else queue
    high, busy = s if high is None else high, s if busy is None else busy
    return ReplicaCost(s, high, queue, wait, busy, s, cached)


def route(name, costs, *, calls=None, budget=None, home="", tokens=100, alpha=0.2, seed=0):
    calls = calls or {}
    views = tuple(ReplicaView(r, frozenset(), True, calls.get(r, 0)) for r in ("a", "b", "c"))
    program = Program(ProgramKey("t", "p"), 0.0, home=home) if home else None
    request = RouteRequest("m", tokens, program, views, costs=costs, budget_s=budget)
    return build(name, 2048, alpha).route(request, Random(seed))


def test_work_weighs_the_queue_against_the_cost():
    """Only `a` is idle, and `b` is the fastest."""
    costs = {"a": cost(3.0), "b": cost(1.0, queue=2.0), "c": cost(3.0, queue=2.0)}
    assert route("work", costs, alpha=0.0).replica == "a"
    assert route("work", costs, alpha=1.0).replica == "b"
    decision = route("work", costs)
    assert (decision.reason, decision.sticky) == ("work", False)


def test_work_is_equation_4():
    costs = {"a": cost(3.0, queue=1.0), "b": cost(1.0, queue=5.0), "c": cost(2.0, queue=2.5)}
    q0 = 2.0
    scores = {
        name: 0.7 * q0**2 / (one.queue_s + q0) - 0.3 * one.cost_s for name, one in costs.items()
    }
    given = route("work", costs, alpha=0.3).scores["work"]
    assert sorted(given, key=given.__getitem__) == sorted(scores, key=scores.__getitem__)
    spread = max(scores.values()) - min(scores.values())
    assert given["c"] == pytest.approx((scores["c"] - min(scores.values())) / spread)


@pytest.mark.parametrize("alpha", [-0.1, 1.1, float("nan")])
def test_alpha_is_a_share(alpha):
    with pytest.raises(ValueError, match="alpha"):
        build("work", 1, alpha)


def test_soonest_takes_the_earliest_finish_without_a_budget():
    costs = {"a": cost(1.0, wait=5.0), "b": cost(3.0, wait=1.0), "c": cost(4.5)}
    decision = route("soonest", costs)
    assert (decision.replica, decision.reason) == ("b", "earliest finish")


def test_soonest_leaves_fast_replicas_free_if_a_slow_one_meets_the_budget():
    costs = {"a": cost(1.0), "b": cost(3.0), "c": cost(9.0)}
    decision = route("soonest", costs, budget=4.0)
    assert (decision.replica, decision.reason) == ("b", "meets the budget")
    assert {route("soonest", costs, budget=4.0, seed=n).replica for n in range(20)} == {"b"}
    assert route("soonest", costs, budget=0.5).replica == "a"
    assert decision.costs == costs
    assert decision.budget_s == 4.0


def test_soonest_meets_the_budget_with_90_percent_probability():
    """A long answer would miss it on `b`."""
    costs = {"a": cost(1.0, high=2.0), "b": cost(3.0, high=6.0), "c": cost(9.0)}
    assert route("soonest", costs, budget=4.0).replica == "a"


def test_soonest_loses_the_least_cached_prefix_within_the_budget():
    costs = {"a": cost(1.0, cached=500), "b": cost(3.0), "c": cost(3.5, cached=100)}
    calls = {"a": 9}
    assert route("soonest", costs, budget=4.0, calls=calls).replica == "a"
    assert route("soonest", costs, budget=0.9, calls=calls).reason == "earliest finish"


def test_soonest_delays_others_least_within_the_budget():
    costs = {"a": cost(1.0, busy=1.0), "b": cost(3.0, busy=2.0), "c": cost(3.0, busy=2.0)}
    assert route("soonest", costs, budget=9.0, calls={"a": 3, "b": 2, "c": 4}).replica == "a"
    assert route("soonest", costs, budget=9.0, calls={"a": 5, "b": 2, "c": 4}).replica == "b"


def test_a_program_leaves_a_home_where_it_would_be_late_for_one_that_meets_with_a_margin():
    costs = {"a": cost(5.0, cached=5000), "b": cost(3.2), "c": cost(9.0)}
    at = {"home": "a", "tokens": LONG}
    assert route("soonest", costs, budget=5.0, **at).reason == "home"
    # A fifth of b's time is missing.
    assert route("soonest", costs, budget=3.5, **at).replica == "a"
    left = route("soonest", costs, budget=4.0, **at)
    assert (left.replica, left.reason, left.new_home) == ("b", "meets the budget", True)
    # The process table would keep the home if it were eligible.
    assert left.eligible == {"b", "c"}
    assert left.rejected == {"a": "late"}


def test_programs_without_a_budget_stay_at_home():
    costs = {"a": cost(5.0, wait=60.0), "b": cost(1.0), "c": cost(1.0)}
    decision = route("soonest", costs, home="a", tokens=LONG)
    assert (decision.replica, decision.sticky) == ("a", True)
    assert route("soonest", costs, home="a", tokens=100).replica in "bc"


@pytest.mark.parametrize("name", ["work", "soonest"])
def test_without_predictions_the_least_used_replica_is_chosen(name):
    assert route(name, None, calls={"a": 2, "b": 1, "c": 2}).replica == "b"


@given(
    name=st.sampled_from(sorted(ROUTERS)),
    costs=st.fixed_dictionaries(
        {
            name: st.builds(ReplicaCost, *[st.floats(0, 1e6)] * 6, st.integers(0, 10**6))
            for name in "abc"
        }
    ),
    budget=st.none() | st.floats(-10, 1e6),
    home=st.sampled_from(["", "a", "gone"]),
    tokens=st.sampled_from([100, LONG]),
)
def test_every_balancer_chooses_an_eligible_replica_with_scores_in_range(
    name, costs, budget, home, tokens
):
    decision = route(name, costs, budget=budget, home=home, tokens=tokens)
    assert decision.replica in decision.eligible
    for scores in decision.scores.values():
        assert all(0 <= score <= 1 for score in scores.values())
