"""Program-level attained service: Algorithm 1 for programs of one thread."""

from __future__ import annotations

import pytest
from weft_engine.orders import CallView, QueueState
from weft_engine.orders.plas import Plas
from weft_engine.queues import QueueLadder

LADDER = QueueLadder(count=3, first_quantum_s=2.0, growth=2.0)


@pytest.mark.parametrize(("service", "queue"), [(0.0, 0), (2.0, 1), (5.9, 1), (6.0, 2)])
def test_plas_enters_by_the_programs_attained_service(service, queue):
    assert Plas(LADDER).enter(CallView(service)) == QueueState(queue, LADDER.quantum(queue))


def test_a_spent_quantum_demotes_by_one_and_the_last_queue_keeps():
    order = Plas(LADDER)
    assert order.review(CallView(queue=0, quantum_left_s=0.0)) == QueueState(1, 4.0)
    assert order.review(CallView(queue=0, quantum_left_s=0.1)) is None
    assert order.review(CallView(queue=2, quantum_left_s=-5.0)) is None


def test_waiting_beyond_beta_times_service_promotes_to_the_first_queue():
    order = Plas(LADDER, beta=2.0)
    view = CallView(3.0, 4.0, queue=1, quantum_left_s=1.0, call_service_s=1.0, call_waiting_s=4.0)
    assert order.review(view) == QueueState(0, 2.0, promoted=True)
    short = CallView(3.0, 4.0, queue=1, quantum_left_s=1.0, call_service_s=1.0, call_waiting_s=3.9)
    assert order.review(short) is None


def test_a_call_in_the_first_queue_is_never_promoted():
    assert Plas(LADDER, beta=0.1).review(CallView(0, 9, queue=0, quantum_left_s=1)) is None


def test_a_call_that_has_not_waited_since_its_promotion_can_be_demoted():
    order = Plas(LADDER, beta=2.0)
    view = CallView(1.0, 1000.0, queue=0, quantum_left_s=-1.0, call_waiting_s=0.0)
    assert order.review(view) == QueueState(1, 4.0)


def test_the_wait_that_is_missing_for_a_promotion_is_known():
    order = Plas(LADDER, beta=2.0)
    view = CallView(3.0, 4.0, queue=1, call_service_s=1.0, call_waiting_s=1.5)
    assert order.starves_in(view) == 2.5
