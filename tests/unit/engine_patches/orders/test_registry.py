"""Orders by name."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft_engine.orders import ORDERS, CallView, build_order, order_names
from weft_engine.orders.ladder import QueueLadder
from weft_engine.wire import ORDER_NAMES


def test_every_order_is_built_by_its_name():
    assert set(ORDER_NAMES) == set(ORDERS)
    assert all(build_order(name, {}).name == name for name in ORDERS)


def test_another_package_registers_an_order(tmp_path, monkeypatch):
    package = tmp_path / "lifo-0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: lifo\nVersion: 0\n")
    (package / "entry_points.txt").write_text("[weft.orders]\nlifo = lifo_order:lifo\n")
    (tmp_path / "lifo_order.py").write_text(
        "from weft_engine.orders import Order\n"
        "def lifo(options):\n"
        "    return Order('lifo', rank=lambda view: -view.queued_s, beta=options.beta)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    order = build_order("lifo", {"beta": 3})
    assert (order.name, order.beta) == ("lifo", 3.0)
    assert {"lifo", *ORDERS} <= set(order_names())


def test_orders_are_built_with_their_options():
    order = build_order("plas", {"queues": 2, "first_quantum_s": 7, "beta": 3})
    assert (order.ladder, order.beta) == (QueueLadder(2, 7.0, 2.0), 3.0)


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"known: atlas, fcfs, .*mlfq, plas, program_fifo, "):
        build_order("lottery", {})


@pytest.mark.parametrize("value", ["7", True, float("nan"), float("inf"), None, 0])
@pytest.mark.parametrize("name", ["beta", "first_quantum_s", "growth", "queues"])
def test_an_option_that_is_no_number_in_range_is_named(name, value):
    with pytest.raises(ValueError, match=name):
        build_order("plas", {name: value})


def test_an_unknown_option_is_named():
    with pytest.raises(ValueError, match="first_quantum\n"):
        build_order("plas", {"first_quantum": 1.0})


# -- orders without queues ---------------------------------------------------------------------


def test_fcfs_ranks_all_calls_alike():
    rank = build_order("fcfs", {}).rank
    assert rank(CallView(1e9, 5.0)) == rank(CallView())


def test_program_fifo_ranks_by_the_arrival_of_the_program():
    rank = build_order("program_fifo", {}).rank
    assert rank(CallView(program_arrival_s=10.0)) < rank(CallView(program_arrival_s=11.0))


def test_resident_refuses_a_negative_factor():
    with pytest.raises(ValueError, match="resident_factor"):
        build_order("resident", {"resident_factor": -0.1})


SECONDS = st.floats(0, 1e4)


@given(st.lists(st.tuples(SECONDS, SECONDS, SECONDS), min_size=1, max_size=8))
def test_urgency_ranks_the_call_with_the_largest_urgency_first(calls):
    now = 2e4
    order = build_order("urgency", {})

    def urgency(queued, budget, cost):
        return cost - (budget - (now - queued))

    views = [(CallView(queued_s=q, budget_s=b, cost_s=c), urgency(q, b, c)) for q, b, c in calls]
    chosen = min(views, key=lambda pair: order.rank(pair[0]))
    assert chosen[1] == pytest.approx(max(u for _, u in views), abs=1e-6)


def test_urgency_uses_the_default_budget_for_calls_without_one():
    order = build_order("urgency", {"default_budget_s": 30.0})
    plain = CallView(queued_s=0.0)
    assert order.rank(plain) == 30.0
    assert order.rank(CallView(queued_s=29.0, budget_s=2.0)) > order.rank(plain)


def test_urgency_needs_a_positive_default_budget():
    with pytest.raises(ValueError, match="default_budget_s"):
        build_order("urgency", {"default_budget_s": 0.0})


def test_slack_is_the_default_order_with_other_ranks():
    slack, default = build_order("slack", {}), build_order("resident", {})
    assert replace(slack, name="resident", rule=None) == replace(default, rank=slack.rank)


def test_slack_ranks_programs_by_target_and_those_without_one_by_arrival():
    rank = build_order("slack", {"default_budget_s": 60.0}).rank
    loose = CallView(program_arrival_s=1e9, deadline_s=100.0)
    tight = CallView(program_arrival_s=1e9 + 5, deadline_s=20.0)
    none = CallView(program_arrival_s=1e9 + 2)
    later = CallView(program_arrival_s=1e9 + 3)
    assert sorted([loose, later, none, tight], key=rank) == [tight, none, later, loose]


def test_urgency_serves_a_call_whose_budget_has_passed_first():
    """As in the paper; `slack` does not."""
    rank = build_order("urgency", {}).rank
    assert rank(CallView(budget_s=0.0, cost_s=9.0)) < rank(CallView(budget_s=10.0, cost_s=9.0))
