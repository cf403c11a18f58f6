"""Orders as pure functions of a call's numbers."""

from __future__ import annotations

import math

import pytest

from engine_patches.orders import CallView, Fcfs, Plas, Standing, build_order
from engine_patches.queues import QueueLadder

LADDER = QueueLadder(count=3, first_quantum_s=2.0, growth=2.0)


def test_fcfs_has_one_queue_and_never_changes_it():
    order = Fcfs()
    view = CallView(program_service_s=1e9, program_waiting_s=1e9, quantum_left_s=-1)
    assert order.enter(view) == Standing(0, math.inf)
    assert order.review(view) is None
    assert not order.displaces


@pytest.mark.parametrize(("service", "queue"), [(0.0, 0), (2.0, 1), (5.9, 1), (6.0, 2)])
def test_plas_enters_by_the_programs_attained_service(service, queue):
    assert Plas(LADDER).enter(CallView(service, 0.0)) == Standing(queue, LADDER.quantum(queue))


def test_a_spent_quantum_demotes_by_one_and_the_last_queue_keeps():
    order = Plas(LADDER)
    assert order.review(CallView(0, 0, queue=0, quantum_left_s=0.0)) == Standing(1, 4.0)
    assert order.review(CallView(0, 0, queue=0, quantum_left_s=0.1)) is None
    assert order.review(CallView(0, 0, queue=2, quantum_left_s=-5.0)) is None


def test_waiting_beyond_beta_times_service_promotes_to_the_first_queue():
    order = Plas(LADDER, beta=2.0)
    view = CallView(3.0, 4.0, queue=1, quantum_left_s=1.0, call_service_s=1.0, call_waiting_s=4.0)
    assert order.review(view) == Standing(0, 2.0, promoted=True)
    short = CallView(3.0, 4.0, queue=1, quantum_left_s=1.0, call_service_s=1.0, call_waiting_s=3.9)
    assert order.review(short) is None


def test_a_call_in_the_first_queue_is_never_promoted():
    assert Plas(LADDER, beta=0.1).review(CallView(0, 9, queue=0, quantum_left_s=1)) is None


def test_a_call_that_has_not_waited_since_its_promotion_can_be_demoted():
    order = Plas(LADDER, beta=2.0)
    view = CallView(1.0, 1000.0, queue=0, quantum_left_s=-1.0, call_waiting_s=0.0)
    assert order.review(view) == Standing(1, 4.0)


def test_orders_are_built_by_name_with_their_options():
    order = build_order("plas", {"queues": 2, "first_quantum_s": 7, "beta": 3})
    assert order == Plas(QueueLadder(2, 7.0, 2.0), 3.0)
    with pytest.raises(ValueError, match="fcfs, plas"):
        build_order("lottery", {})
    with pytest.raises(ValueError, match="beta"):
        build_order("plas", {"beta": 0})
