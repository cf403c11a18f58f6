"""PLAS that sees the cache."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft_engine.orders import CallView, Order, QueueState, build_order

LADDER = {"queues": 4, "first_quantum_s": 2.0, "growth": 2.0}


def warm_plas(**options: float) -> Order:
    return build_order("warm_plas", options)


VIEWS = st.builds(
    CallView,
    queue=st.integers(0, 7),
    program_service_s=st.floats(0, 1e6),
    program_waiting_s=st.floats(0, 1e6),
    program_arrival_s=st.floats(0, 2e9),
    quantum_left_s=st.floats(-10, 100),
    call_service_s=st.floats(0, 1e4),
    call_waiting_s=st.floats(0, 1e4),
    cached_tokens=st.integers(0, 10**6),
    uncached_tokens=st.integers(0, 10**6),
    running=st.booleans(),
)


def test_in_one_queue_warm_goes_before_cold_and_less_to_compute_before_more():
    rank = warm_plas().rank
    warm = CallView(queue=2, cached_tokens=9000, uncached_tokens=100)
    some = CallView(queue=2, cached_tokens=0, uncached_tokens=3000)
    more = CallView(queue=2, cached_tokens=3000, uncached_tokens=9000)
    assert rank(warm) < rank(some) < rank(more) < rank(CallView(queue=3, uncached_tokens=300))


def test_a_warm_call_passes_cold_ones_up_to_its_lead_and_no_further():
    rank = warm_plas(affinity_levels=2.0).rank
    warm = CallView(queue=3, cached_tokens=100, uncached_tokens=1)
    assert rank(warm) < rank(CallView(queue=2, uncached_tokens=257))
    assert rank(CallView(queue=0, uncached_tokens=10**9)) < rank(warm)


def test_a_running_call_is_warm_and_cedes_its_slot_only_to_a_better_queue():
    order = warm_plas(affinity_levels=2.0)
    runs = CallView(queue=3, running=True)
    margin = order.margin
    assert margin is not None

    def displaces(view: CallView) -> bool:
        return order.rank(view) + margin < order.rank(runs)

    assert not displaces(CallView(queue=3, cached_tokens=2, uncached_tokens=1))
    assert displaces(CallView(queue=2, cached_tokens=2, uncached_tokens=1))
    assert not displaces(CallView(queue=1, uncached_tokens=300))
    assert displaces(CallView(queue=0, uncached_tokens=300))


def test_a_call_with_next_to_nothing_to_compute_is_as_good_as_warm():
    rank = warm_plas().rank
    new = CallView(queue=0, uncached_tokens=256)
    warm = CallView(queue=0, cached_tokens=5000, uncached_tokens=100)
    assert rank(new) == rank(warm) < rank(CallView(queue=0, uncached_tokens=257))


def test_equal_calls_are_ranked_by_arrival_of_program_then_call():
    turn = warm_plas().tie_break
    old, young = CallView(program_arrival_s=1.7e9), CallView(program_arrival_s=1.7e9 + 0.001)
    assert turn(old, 10**9) < turn(young, 1)
    assert turn(old, 1) < turn(old, 2)


@given(VIEWS)
def test_queues_demotions_and_promotions_are_those_of_plas(view: CallView):
    warm, plas = build_order("warm_plas", LADDER), build_order("plas", LADDER)
    assert warm.enter(view) == plas.enter(view)
    if view.queue > 0:
        assert warm.review(view) == plas.review(view)
        assert warm.starves_in(view) == plas.starves_in(view)


def test_in_the_first_queue_a_starving_call_is_promoted_once():
    order = warm_plas(**LADDER, beta=10.0)
    # The first two quanta of the ladder, 2 and 4 s, lead to the queue whose warm calls still pass.
    waits = CallView(call_waiting_s=59.0)
    assert order.starves_in(waits) == 1.0
    assert order.review(waits) is None
    starved = CallView(call_waiting_s=60.0)
    assert order.review(starved) == QueueState(0, 2.0, promoted=True)
    assert order.review(replace(starved, promoted=True)) is None
    assert math.isinf(order.starves_in(replace(starved, promoted=True)))
    served = CallView(call_waiting_s=60.0, program_service_s=7.0)
    assert order.starves_in(served) == 10.0
    assert math.isinf(warm_plas(**LADDER, affinity_levels=0.5).starves_in(starved))


@given(VIEWS)
def test_no_call_passes_a_promoted_one_which_preempts_none_in_its_queue(view: CallView):
    order = warm_plas()
    margin = order.margin
    assert margin is not None
    promoted = CallView(promoted=True, uncached_tokens=10**6)
    assert order.rank(promoted) < order.rank(view)
    assert order.rank(promoted) + margin > order.rank(CallView(running=True))
    assert order.max_hold_s(promoted, 5.0) == 0.0


@given(VIEWS, VIEWS)
def test_no_call_passes_one_that_stands_better_by_more_than_the_lead(a: CallView, b: CallView):
    order = warm_plas()
    if a.queue > b.queue + 2.0 + 0.5:
        assert order.rank(b) < order.rank(a)


@given(VIEWS, st.floats(0.01, 100))
def test_a_hold_ends(view: CallView, keep_s: float):
    order = warm_plas(beta=10.0)
    left = order.max_hold_s(view, keep_s)
    assert math.isfinite(left)
    bound = 10.0 * max(view.program_service_s + view.call_service_s, keep_s)
    assert left <= bound
    if view.program_waiting_s + view.call_waiting_s >= bound:
        assert left <= 0


@pytest.mark.parametrize("option", ["affinity_levels", "reserve_factor"])
def test_wrong_options_are_refused(option):
    with pytest.raises(ValueError, match=option):
        build_order("warm_plas", {option: -0.1})
    with pytest.raises(ValueError, match="beta"):
        build_order("warm_plas", {"beta": 0})
