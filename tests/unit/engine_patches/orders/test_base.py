"""Queues, demotion and promotion, for every order that has queues."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft_engine.orders import CallView, Order, QueueState, build_order

SECONDS = st.floats(0, 1e6)


def plas(**options: float) -> Order:
    return build_order("plas", {"queues": 3, "first_quantum_s": 2.0, "growth": 2.0, **options})


def test_an_order_without_queues_never_moves_a_call():
    order = build_order("fcfs", {})
    view = CallView(1e9, 1e9, queue=0, quantum_left_s=-1.0, call_waiting_s=1e9)
    assert order.enter(view) == QueueState(0, math.inf)
    assert order.review(view) is None
    assert order.starves_in(view) == math.inf
    assert not order.preempts


@pytest.mark.parametrize("beta", [0, -1.0])
def test_beta_must_be_positive(beta):
    with pytest.raises(ValueError, match="beta"):
        plas(beta=beta)


@given(
    st.sampled_from(["plas", "atlas", "mlfq"]),
    SECONDS, SECONDS, SECONDS, SECONDS, st.integers(0, 7), SECONDS,
)  # fmt: skip
def test_a_call_is_promoted_after_the_missing_wait_and_not_before(
    kind, service, waiting, call_service, call_waiting, queue, path
):
    order = build_order(kind, {"beta": 3.0})

    def view(more):
        return CallView(
            service, waiting, path, queue=queue, quantum_left_s=1.0,
            call_service_s=call_service, call_waiting_s=call_waiting + more,
        )  # fmt: skip

    missing = order.starves_in(view(0.0))
    if queue == 0:
        assert missing == math.inf
        return
    # A little beyond, so that rounding does not decide.
    state = order.review(view(max(missing, 0.0) * (1 + 1e-9) + 1e-3))
    assert state is not None
    assert (state.queue, state.promoted) == (0, True)
    if missing > 1e-3 * (1 + service + waiting + path):
        assert order.review(view(missing * 0.99)) is None


@pytest.mark.parametrize(("service", "queue"), [(0.0, 0), (2.0, 1), (5.9, 1), (6.0, 2)])
def test_plas_enters_by_the_programs_attained_service(service, queue):
    order = plas()
    assert order.ladder is not None
    assert order.enter(CallView(service)) == QueueState(queue, order.ladder.quantum(queue))


def test_a_spent_quantum_demotes_by_one_and_the_last_queue_keeps():
    order = plas()
    assert order.review(CallView(queue=0, quantum_left_s=0.0)) == QueueState(1, 4.0)
    assert order.review(CallView(queue=0, quantum_left_s=0.1)) is None
    assert order.review(CallView(queue=2, quantum_left_s=-5.0)) is None


def test_waiting_beyond_beta_times_service_promotes_to_the_first_queue():
    order = plas(beta=2.0)
    view = CallView(3.0, 4.0, queue=1, quantum_left_s=1.0, call_service_s=1.0, call_waiting_s=4.0)
    assert order.review(view) == QueueState(0, 2.0, promoted=True)
    short = CallView(3.0, 4.0, queue=1, quantum_left_s=1.0, call_service_s=1.0, call_waiting_s=3.9)
    assert order.review(short) is None


def test_a_call_in_the_first_queue_is_never_promoted():
    assert plas(beta=0.1).review(CallView(0, 9, queue=0, quantum_left_s=1)) is None


def test_a_call_that_has_not_waited_since_its_promotion_can_be_demoted():
    view = CallView(1.0, 1000.0, queue=0, quantum_left_s=-1.0, call_waiting_s=0.0)
    assert plas(beta=2.0).review(view) == QueueState(1, 4.0)


def test_the_wait_that_is_missing_for_a_promotion_is_known():
    view = CallView(3.0, 4.0, queue=1, call_service_s=1.0, call_waiting_s=1.5)
    assert plas(beta=2.0).starves_in(view) == 2.5


def test_atlas_counts_the_critical_path_and_not_the_sum_over_threads():
    order = build_order("atlas", {"queues": 4, "first_quantum_s": 1.0})
    assert order.enter(CallView(program_service_s=100.0, critical_path_s=0.5)).queue == 0
    assert order.enter(CallView(program_service_s=4.0, critical_path_s=4.0)).queue == 2


def test_mlfq_ignores_programs():
    order = build_order("mlfq", {"queues": 4, "first_quantum_s": 1.0, "beta": 2.0})
    assert order.enter(CallView(1e6, 1e6, 1e6)).queue == 0
    view = CallView(0.0, 1e6, queue=1, quantum_left_s=1.0, call_service_s=1.0, call_waiting_s=1.0)
    assert order.review(view) is None
