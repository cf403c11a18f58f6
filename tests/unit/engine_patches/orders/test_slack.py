"""Which due calls can be on time, and which running calls may be preempted for them."""

from __future__ import annotations

import math
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft_engine.orders.slack import DueCall, DueRules, on_time

SECONDS = st.integers(0, 20).map(float)
CALLS = st.lists(
    st.builds(DueCall, SECONDS, SECONDS, st.sampled_from([1.0, 2.0, 4.0])), max_size=7
).map(lambda calls: sorted(calls, key=lambda call: call.slack_s))


def possible(calls: list[DueCall], slots: list[float]) -> bool:
    """Whether slots that are free at these times can serve all calls in time, each slot in the
    order of the list."""
    if not calls:
        return True
    first, *others = calls
    return any(
        start <= first.slack_s
        and possible(others, [*slots[:at], start + first.cost_s, *slots[at + 1 :]])
        for at, start in enumerate(slots)
    )


@given(CALLS, st.integers(0, 3), st.lists(SECONDS, max_size=3))
def test_all_chosen_calls_can_start_in_time(calls, free, running):
    chosen, spare_s = on_time(calls, free, running)
    kept = [call for call, fits in zip(calls, chosen, strict=True) if fits]
    assert possible(kept, [0.0] * free + running)
    assert spare_s >= 0


def listed(calls: list[DueCall], slots: list[float]) -> bool:
    """Whether all calls are in time if each takes the slot that is free first."""
    for call in calls:
        slots = sorted(slots)
        if not slots or slots[0] > call.slack_s:
            return False
        slots[0] += call.cost_s
    return True


@given(CALLS, st.integers(0, 3), st.lists(SECONDS, max_size=3))
def test_nothing_is_dropped_if_all_can_be_on_time(calls, free, running):
    chosen, _ = on_time(calls, free, running)
    assert all(chosen) == listed(calls, [0.0] * free + running)


@given(st.lists(st.integers(1, 10).map(float), max_size=6))
def test_on_one_slot_with_one_deadline_it_keeps_as_many_calls_as_possible(costs):
    """Compared with every subset."""
    calls = sorted(DueCall(10.0 - cost, cost, 1.0) for cost in costs)
    chosen, _ = on_time(calls, 1, [])
    best = 0
    for size in range(len(calls) + 1):
        for subset in combinations(calls, size):
            if sum(call.cost_s for call in subset) <= 10.0:
                best = size
    assert sum(chosen) == best


def test_the_call_that_costs_most_per_weight_is_dropped():
    """Without the rule, the long call would start first and make the others late."""
    long, short = DueCall(0.0, 10.0, 1.0), DueCall(3.0, 2.0, 1.0)
    assert on_time([long, short, short], 1, [])[0] == [False, True, True]
    heavy = DueCall(0.0, 10.0, 8.0)
    assert on_time([heavy, short, short], 1, [])[0] == [True, False, False]


def test_slots_of_running_due_calls_are_free_later():
    call = DueCall(3.0, 1.0, 1.0)
    assert on_time([call, call], 0, [2.0, 9.0])[0] == [True, True]
    assert on_time([call, call, call], 0, [2.0, 9.0])[0].count(True) == 2
    assert on_time([call], 0, [4.0])[0] == [False]
    assert on_time([call], 0, [])[0] == [False]


@given(
    st.lists(st.builds(DueCall, *[st.floats(0, 1e12)] * 2, st.floats(5e-324, 1e6)), max_size=8),
    st.integers(0, 4), st.lists(st.floats(0, 1e12), max_size=4),
)  # fmt: skip
def test_any_numbers_have_an_answer(calls, free, running):
    calls.sort(key=lambda call: call.slack_s)
    chosen, _ = on_time(calls, free, running)
    assert len(chosen) == len(calls)


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.floats(0, 1e3))
def test_a_call_that_would_then_miss_is_spared(slack, wait, margin):
    rules = DueRules(margin, 0.75, 60.0)
    if slack < wait:
        assert rules.spares(slack, wait)
    assert not rules.spares(wait + margin, wait)
    assert rules.spares(slack, math.inf)
    # It has no target, or misses it anyway.
    assert not rules.spares(None, math.inf)
    assert not rules.spares(-0.1, math.inf)


@pytest.mark.parametrize(
    ("slots", "portion", "limit"),
    [(8, 1.0, 6), (8, 0.5, 3), (4, 1.0, 3), (2, 1.0, 1), (1, 1.0, 1), (256, 0.1, 19)],
)
def test_due_calls_get_a_share_of_the_slots(slots, portion, limit):
    assert DueRules(5.0, 0.75, 60.0).slots(slots, portion) == limit
