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


def test_the_wait_for_memory_is_the_time_of_all_deferrals_and_has_the_figures_of_the_first():
    a = call_state()
    a.enqueue("s", 10.0)
    a.defer(11.0, 18_000, 2)
    a.resume(13.0)
    a.defer(13.0, 18_000, 1)
    a.defer(14.0, 18_000, 1)
    a.resume(14.5)
    a.resume(15.0)
    a.defer(16.0, 500, 0)
    a.start("s", 17.0)
    a.leave("s", 20.0)
    report = a.report()
    assert (report.memory_wait_s, report.memory_tokens, report.programs_ahead) == (4.5, 18_000, 2)
    assert report.waiting_s == 7.0


def test_an_aborted_call_has_waited_for_memory_until_its_end():
    a = call_state()
    a.enqueue("s", 0.0)
    a.defer(1.0, 100, 1)
    a.leave("s", 4.0)
    assert a.report().memory_wait_s == 3.0


def test_a_call_with_a_running_sequence_does_not_wait_for_memory():
    a = call_state()
    a.enqueue("s1", 0.0)
    a.enqueue("s2", 0.0)
    a.start("s1", 1.0)
    a.defer(2.0, 100, 1)
    a.leave("s2", 5.0)
    a.leave("s1", 6.0)
    report = a.report()
    assert (report.memory_wait_s, report.memory_tokens) == (0.0, 0)


def test_a_promotion_resets_the_calls_own_two_numbers_and_not_its_totals():
    a = call_state()
    a.enqueue("s", 0.0)
    a.start("s", 3.0)
    a.clock.seconds += 1.0
    a.stand(QueueState(0, 2.0, promoted=True))
    view = a.view(3.0)
    assert (view.call_service_s, view.call_waiting_s) == (0.0, 0.0)
    assert (a.service_s, a.waiting_s) == (1.0, 3.0)
    assert a.report().queue_path == (1, 0)
    assert not math.isinf(a.quantum_left_s)
