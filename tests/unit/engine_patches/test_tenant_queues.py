"""The order of service for the waiting sequences of several tenants."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from weft_engine.call_table import CallTable
from weft_engine.orders import build_order
from weft_engine.tenant_queues import TenantQueues
from weft_engine.wire import CallContext

OPTIONS = {"queues": 4, "first_quantum_s": 2.0, "growth": 2.0}


class Book:
    """A call table that reports its changes."""

    def __init__(self, policy: str = "plas") -> None:
        self.calls = CallTable(build_order(policy, OPTIONS))
        self.tenant_queues = TenantQueues(self.calls)

    def come(self, name: str, service_s: float = 0.0, weight: float = 1.0) -> None:
        context = CallContext(name, name, service_s=service_s, tenant=name[0], weight=weight)
        self.calls.arrive(name, context, 0.0)
        self.update_table()

    def update_table(self) -> None:
        self.tenant_queues.invalidate(self.calls.moved)
        self.calls.moved.clear()

    def next(self, count: int, *refused: str) -> list[str]:
        return self.tenant_queues.next(count, lambda name: name not in refused)


def test_tenants_take_turns_and_inside_a_tenant_the_order_decides():
    book = Book()
    for name, service in [("a0", 9.0), ("a1", 0.0), ("a2", 3.0), ("b0", 99.0), ("b1", 50.0)]:
        book.come(name, service)
    found = book.next(9)
    assert [n for n in found if n[0] == "a"] == ["a1", "a2", "a0"]
    assert {n[0] for n in found[:2]} == {n[0] for n in found[2:4]} == {"a", "b"}
    assert book.next(9) == found, "to ask changes nothing"


def test_unready_and_deferred_sequences_take_no_turn():
    book = Book()
    for name in ("a0", "a1", "b0"):
        book.come(name)
    assert book.next(2, "a0") == ["a1", "b0"]
    book.calls.hold("b0", True, 0.0)
    book.update_table()
    assert book.next(3) == ["a0", "a1"]
    book.calls.hold("b0", False, 0.0)
    book.update_table()
    assert sorted(book.next(3)) == ["a0", "a1", "b0"]


def test_started_and_aborted_sequences_are_not_next():
    book = Book()
    for name in ("a0", "a1", "a2", "b0"):
        book.come(name)
    assert book.next(4)[0] == "a0"
    book.calls.start("a0", 0.0)
    book.calls.leave("a1", 0.0)
    book.update_table()
    assert book.next(4) == ["b0", "a2"]
    book.calls.preempt("a0", 1.0)
    book.update_table()
    assert sorted(book.next(4)) == ["a0", "a2", "b0"]


def test_no_sequence_follows_a_first_one_that_lacks_blocks():
    book = Book()
    for name in ("a0", "a1", "b0"):
        book.come(name)
    asked: list[str] = []

    def fits(name: str) -> bool:
        asked.append(name)
        return False

    first = book.next(1)
    assert book.tenant_queues.next(3, lambda name: True, fits) == first == asked
    assert len(book.tenant_queues.next(3, lambda name: True, lambda name: True)) == 3


def test_changed_tenants_are_dirty_until_cleared():
    book = Book()
    book.come("a0")
    book.come("b0")
    assert book.tenant_queues.dirty == {"a": None, "b": None}
    book.tenant_queues.clear()
    assert book.tenant_queues.dirty == {}
    assert sorted(book.next(2)) == ["a0", "b0"]


def test_a_sequence_that_left_makes_no_other_tenant_dirty():
    book = Book()
    for name in ("a0", "a1", "b0"):
        book.come(name)
    book.tenant_queues.dirty.clear()
    book.calls.leave("a1", 0.0)
    book.tenant_queues.invalidate({"a1"})
    assert book.tenant_queues.dirty == {}
    assert sorted(book.next(3)) == ["a0", "b0"]


def test_ready_sequences_behind_many_that_are_not_have_their_turn():
    book = Book()
    names = [f"a{number:03}" for number in range(300)]
    for name in names:
        book.come(name)
    book.come("b0")
    asked: list[str] = []

    def ready(name: str) -> bool:
        asked.append(name)
        return name in ("a250", "a251", "b0")

    rounds = []
    for _ in range(10):
        asked.clear()
        rounds.append(book.tenant_queues.next(2, ready))
        assert len(asked) <= 2 * 32 + 2 + 1
    assert rounds[-1] == ["b0", "a250"] or rounds[-1] == ["a250", "b0"]
    for name in ("a250", "a251"):
        book.calls.start(name, 0.0)
    book.update_table()
    names.clear()
    seen = set()
    for _ in range(12):
        asked.clear()
        book.tenant_queues.next(2, ready)
        seen.update(asked)
    assert len(seen) == 299, "all are asked again and again"


EVENTS = st.lists(
    st.tuples(st.sampled_from("ccspl"), st.integers(0, 11), st.floats(0.0, 40.0)), max_size=60
)


@given(EVENTS)
@settings(deadline=None)
def test_a_tenants_sequences_are_always_asked_in_the_order_of_their_ranks(events):
    book = Book()
    waiting: set[str] = set()
    running: set[str] = set()
    for kind, number, service in events:
        name = f"{'abc'[number % 3]}{number}"
        if kind == "c" and name not in waiting | running:
            book.come(name, service)
            waiting.add(name)
        elif kind == "s" and name in waiting:
            book.calls.start(name, 0.0)
            waiting.remove(name)
            running.add(name)
        elif kind == "p" and name in running:
            book.calls.preempt(name, 0.0)
            running.remove(name)
            waiting.add(name)
        elif kind == "l" and name in waiting | running:
            book.calls.leave(name, 0.0)
            waiting.discard(name)
            running.discard(name)
        book.calls.serve(dict.fromkeys(running, 1), 0.7, 0.0)
        book.update_table()
        for tenant in "abc":
            mine = sorted((n for n in waiting if n[0] == tenant), key=book.calls.rank)
            assert list(book.tenant_queues.of(tenant)) == mine
        assert set(book.next(20)) == waiting
