"""Orders and a balancer of rivals."""

from __future__ import annotations

import tomllib
from importlib import import_module
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft_bench.orders.rivals import llf, power_of_two, vtc
from weft_bench.orders.token_counters import TokenCounters
from weft_engine.call_table import CallTable
from weft_engine.orders import ORDERS, CallView, OrderOptions
from weft_engine.wire import CallContext
from weft_gateway.model import ReplicaView, RouteRequest
from weft_gateway.policies.route.registry import ROUTERS

SECONDS = st.floats(0, 1e4)


def test_they_register_under_their_names_and_replace_none_of_weft():
    text = (Path(__file__).parents[4] / "loadgen/pyproject.toml").read_text()
    groups = tomllib.loads(text)["project"]["entry-points"]
    found = {}
    for group, taken in (("weft.orders", ORDERS), ("weft.balancers", ROUTERS)):
        assert taken.keys().isdisjoint(groups[group])
        for name, where in groups[group].items():
            module, _, attribute = where.partition(":")
            found[name] = getattr(import_module(module), attribute)
    built = {
        n: b(2048, 0.0) if n == "power_of_two" else b(OrderOptions()) for n, b in found.items()
    }
    assert {name: one.name for name, one in built.items()} == {name: name for name in built}


@given(st.lists(st.tuples(SECONDS, st.floats(-1e4, 1e4), SECONDS), min_size=1, max_size=8))
def test_llf_ranks_the_call_with_the_least_laxity_of_its_program_first(calls):
    now, order = 2e4, llf(OrderOptions())

    def laxity(queued, left, path):
        return left - (now - queued) - path

    views = [(CallView(queued_s=q, left_s=t, path_s=p), laxity(q, t, p)) for q, t, p in calls]
    chosen = min(views, key=lambda pair: order.rank(pair[0]))
    assert chosen[1] == pytest.approx(min(each for _, each in views), abs=1e-6)


def test_llf_ignores_budgets_and_uses_the_default_for_calls_without_a_target():
    rank = llf(OrderOptions(default_budget_s=30.0)).rank
    assert rank(CallView(budget_s=1.0)) == 30.0
    assert rank(CallView(budget_s=1.0, left_s=40.0, cost_s=2.0)) == 38.0
    assert rank(CallView(left_s=40.0, cost_s=2.0, path_s=15.0)) == 25.0


class Scheduler:
    """A scheduler with one slot."""

    def __init__(self, lacking: int = 0) -> None:
        self.lacking = lacking

    def slots(self) -> int:
        return 1

    def blocks_lacking(self) -> int:
        return self.lacking


def test_vtc_ranks_calls_by_the_weighted_tokens_of_their_programs():
    """Running calls move only if the engine is about to preempt one of them."""
    calls = CallTable(vtc(OrderOptions()))
    for name, program in (("a", "p"), ("b", "p"), ("c", "q"), ("d", "r")):
        calls.arrive(name, CallContext(name, program), 0.0)
    for name in "ac":
        calls.start(name, 0.0)
    calls.serve({"a": 40, "c": 1}, 1.0, 1.0)
    assert calls.rule is not None
    assert calls.rule.refresh(1.0, Scheduler())
    assert [calls.rank(name)[0] for name in "abcd"] == [0, 40, 0, 0]
    assert calls.rule.refresh(1.0, Scheduler(lacking=1))
    assert [calls.rank(name)[0] for name in "abcd"] == [40, 40, 2, 0]
    assert not calls.rule.refresh(1.0, Scheduler())
    for name in "abcd":
        calls.leave(name, 2.0)
    assert calls.violations([]) == []


def test_a_program_that_was_idle_cannot_save_up_turns():
    counters = TokenCounters()
    counters.arrive("busy", [])
    counters.serve("busy", 100, 0)
    counters.arrive("new", ["busy"])
    assert counters.of("new") == 100
    # One that is active keeps what it has.
    counters.serve("busy", 50, 3)
    counters.arrive("new", ["busy", "new"])
    assert (counters.of("new"), counters.of("busy")) == (100, 156)


def test_old_programs_are_forgotten():
    counters = TokenCounters()
    for number in range(65_537):
        counters.arrive(f"p{number}", [])
        counters.serve(f"p{number}", 1, 0)
    assert (counters.of("p0"), counters.of("p1")) == (0, 1)


def test_power_of_two_takes_the_less_used_of_two():
    used = {"a": 3, "b": 2, "c": 1}
    replicas = tuple(ReplicaView(name, frozenset(), True, n) for name, n in used.items())
    request, router = RouteRequest("m", 10, None, replicas), power_of_two(2048, 0.0)
    assert {router.route(request, Random(seed)).replica for seed in range(40)} == {"b", "c"}
