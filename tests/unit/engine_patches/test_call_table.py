"""Queues and ranks of calls under events."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from weft_engine.call_table import CallTable
from weft_engine.orders import ORDERS, build_order
from weft_engine.wire import CallContext

OPTIONS = {"queues": 4, "first_quantum_s": 2.0, "growth": 2.0, "beta": 2.0}


def call_table(policy: str = "plas") -> CallTable:
    return CallTable(build_order(policy, OPTIONS))


def test_sequences_sort_by_queue_then_rank_then_arrival():
    book = call_table("program_fifo")
    book.arrive("young", CallContext("a", "p", arrival_s=9.0), 10.0)
    book.arrive("old", CallContext("b", "q", arrival_s=1.0), 11.0)
    book.arrive("old too", CallContext("c", "q", arrival_s=1.0), 12.0)
    assert sorted(["young", "old too", "old"], key=book.rank) == ["old", "old too", "young"]
    assert book.rank("nobody") < book.rank("old")


def test_a_call_is_promoted_when_its_wait_is_long_enough_and_not_before():
    book = call_table()
    book.arrive("s", CallContext("c", "p", service_s=3.0, waiting_s=1.0), 10.0)
    book.promote(14.9)
    assert book.rank("s")[0] == 1
    book.promote(15.0)
    assert book.rank("s")[0] == 0
    call_state = book.of("s")
    assert call_state is not None
    # Only the call's own two start again; what it has waited is not forgotten.
    assert (call_state.call_waiting_s, call_state.waiting_s) == (0.0, 5.0)


def test_a_program_that_starved_long_ago_promotes_its_call_as_soon_as_it_waits():
    book = call_table()
    book.arrive("s", CallContext("c", "p", service_s=3.0, waiting_s=1e6), 10.0)
    book.promote(10.0)
    assert book.rank("s")[0] == 1
    book.promote(10.001)
    assert book.rank("s")[0] == 0


def test_a_call_that_runs_is_demoted_and_does_not_starve():
    book = call_table()
    book.arrive("s", CallContext("c", "p"), 0.0)
    book.start("s", 0.0)
    for second in range(1, 8):
        book.serve({"s": 1}, 1.0, float(second))
        book.promote(float(second))
    call_state = book.of("s")
    assert call_state is not None
    assert call_state.queue_path == [0, 1, 2]


def test_a_step_is_charged_once_to_a_call_and_its_quantum():
    book = call_table()
    for name in ("one", "two"):
        book.arrive(name, CallContext("c", "p"), 0.0)
        book.start(name, 0.0)
    book.serve({"one": 1, "two": 1}, 1.5, 1.5)
    call = book.of("one")
    assert call is not None
    assert (call.service_s, call.call_service_s, call.quantum_left_s) == (1.5, 1.5, 0.5)


def test_a_call_whose_running_sequence_has_left_starves_like_any_that_waits():
    book = call_table()
    for name in ("one", "two"):
        book.arrive(name, CallContext("c", "p", service_s=3.0), 0.0)
    book.start("one", 0.0)
    book.promote(100.0)
    book.leave("one", 100.0)
    book.promote(105.9)
    assert book.rank("two")[0] == 1
    book.promote(106.0)
    assert book.rank("two")[0] == 0


def test_under_another_order_all_calls_enter_anew():
    book = call_table("fcfs")
    book.arrive("s", CallContext("c", "p", service_s=5.0), 0.0)
    book.moved.clear()
    book.switch(build_order("plas", OPTIONS), 1.0)
    assert book.rank("s")[0] == 1
    assert book.moved == {"s"}


EVENTS = st.lists(
    st.tuples(st.sampled_from("asplv"), st.integers(0, 5), st.floats(0, 3)), max_size=60
)


@settings(max_examples=150)
@given(EVENTS, st.sampled_from(sorted(ORDERS)))
def test_any_sequence_of_events_keeps_the_state_consistent(events, policy):
    book = call_table(policy)
    now = 0.0
    waiting: set[str] = set()
    running: set[str] = set()
    total = {"service": 0.0}
    for kind, number, pause in events:
        now += pause
        name = f"s{number}"
        if kind == "a" and name not in waiting | running:
            book.arrive(name, CallContext(f"c{number // 2}", f"p{number // 4}"), now)
            waiting.add(name)
        elif kind == "s" and name in waiting:
            book.start(name, now)
            waiting.remove(name)
            running.add(name)
        elif kind == "p" and name in running:
            book.preempt(name, now)
            running.remove(name)
            waiting.add(name)
        elif kind == "l" and name in waiting | running:
            book.leave(name, now)
            waiting.discard(name)
            running.discard(name)
        elif kind == "v" and running:
            book.serve(dict.fromkeys(running, 1), pause, now)
            total["service"] += pause
        book.promote(now)
        assert book.violations(waiting | running) == []
        assert sum(book.waiting_by_queue().values()) == len(waiting)
    for name in list(waiting | running):
        book.leave(name, now)
    assert book.violations([]) == []
