"""HexGen-Flow's urgency, equations 7 and 8."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft_engine.orders import CallView
from weft_engine.orders.urgency import Urgency

SECONDS = st.floats(0, 1e4)
CALLS = st.lists(st.tuples(SECONDS, SECONDS, SECONDS), min_size=1, max_size=8)


@given(CALLS)
def test_the_first_by_rank_has_the_largest_urgency(calls):
    now = 2e4
    order = Urgency()

    def urgency(queued, budget, cost):
        return cost - (budget - (now - queued))

    views = [(CallView(queued_s=q, budget_s=b, cost_s=c), urgency(q, b, c)) for q, b, c in calls]
    chosen = min(views, key=lambda pair: order.rank(pair[0]))
    assert chosen[1] == pytest.approx(max(u for _, u in views), abs=1e-6)


def test_a_call_without_a_budget_has_the_default_one_and_so_its_turn_comes():
    order = Urgency(default_budget_s=30.0)
    plain = CallView(queued_s=0.0)
    assert order.rank(plain) == 30.0
    assert order.rank(CallView(queued_s=29.0, budget_s=2.0)) > order.rank(plain)


def test_the_default_budget_must_be_positive():
    with pytest.raises(ValueError, match="default_budget_s"):
        Urgency(0.0)
