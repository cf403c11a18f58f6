"""Service and waiting time of a call, event by event."""

from __future__ import annotations

import math

from weft_engine.call_state import CallState
from weft_engine.orders import QueueState
from weft_engine.wire import CallContext


def call_state() -> CallState:
    made = CallState(CallContext("c", "p", service_s=5.0, waiting_s=1.0), "plas")
    made.stand(QueueState(1, 4.0))
    return made


def test_waiting_is_time_in_the_queue_also_after_a_preemption():
    a = call_state()
    a.enqueue("s", 10.0)
    a.start("s", 12.0)
    a.enqueue("s", 20.0)
    assert a.view(21.0).call_waiting_s == 3.0
    a.start("s", 23.0)
    a.leave("s", 30.0)
    report = a.report()
    assert report.waiting_s == 5.0
    assert report.finished


def test_a_call_waits_only_while_none_of_its_sequences_runs():
    a = call_state()
    a.enqueue("s1", 0.0)
    a.enqueue("s2", 0.0)
    a.start("s1", 2.0)
    a.leave("s1", 5.0)
    a.start("s2", 6.0)
    a.leave("s2", 7.0)
    assert a.report().waiting_s == 3.0


def test_an_aborted_wait_counts():
    a = call_state()
    a.enqueue("s", 0.0)
    a.leave("s", 4.0)
    assert a.report().waiting_s == 4.0
    assert not a.alive


def test_a_promotion_resets_the_calls_own_two_numbers_and_not_its_totals():
    a = call_state()
    a.enqueue("s", 0.0)
    a.service_s = a.call_service_s = 1.0
    a.settle_wait(3.0)
    a.stand(QueueState(0, 2.0, promoted=True))
    view = a.view(3.0)
    assert (view.call_service_s, view.call_waiting_s) == (0.0, 0.0)
    assert (a.service_s, a.waiting_s) == (1.0, 3.0)
    assert a.report().queue_path == (1, 0)
    assert not math.isinf(a.quantum_left_s)
