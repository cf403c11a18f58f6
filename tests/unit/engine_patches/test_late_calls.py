"""Late calls under the order `slack`, on a table of calls; tests/engine has an engine."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft_engine.call_table import CallTable
from weft_engine.late_calls import LateCalls
from weft_engine.orders import build_order
from weft_engine.wire import CallContext

DEFAULT_S = 60.0


class Room:
    def slots(self) -> int:
        return 4


class Engine:
    """Calls that wait or run on an engine under `slack`."""

    def __init__(self) -> None:
        self.calls = CallTable(build_order("slack", {"default_budget_s": DEFAULT_S}))
        self.now = 0.0
        self.waiting: list[str] = []

    @property
    def rule(self) -> LateCalls:
        assert isinstance(self.calls.rule, LateCalls)
        return self.calls.rule

    def come(self, name: str, deadline: float | None = None, path: float = 0.0, **given) -> None:
        given = {"left_s": deadline, "arrival_s": self.now} | given
        context = CallContext(name, name, deadline_s=deadline, path_s=path, **given)
        self.calls.arrive(name, context, self.now)
        self.waiting.append(name)

    def start(self, name: str) -> None:
        self.waiting.remove(name)
        self.calls.start(name, self.now)

    def preempt(self, name: str) -> None:
        self.waiting.append(name)
        self.calls.preempt(name, self.now)

    def queue(self) -> list[str]:
        """The waiting calls in order, now."""
        if self.now >= self.rule.next_at:
            self.rule.refresh(self.now, Room())
        assert self.rule.violations() == []
        return sorted(self.waiting, key=self.calls.rank)

    def late(self, name: str) -> bool:
        call = self.calls.of(name)
        assert call is not None
        return call.late


def test_programs_rank_by_target_and_those_without_one_by_arrival():
    e = Engine()
    e.come("loose", 100.0)
    e.come("plain")
    e.now = 5.0
    e.come("tight", 20.0)
    assert e.queue() == ["tight", "plain", "loose"]


def test_a_waiting_call_becomes_late_when_its_path_does_not_fit_any_more():
    e = Engine()
    e.come("tight", 10.0, path=4.0)
    e.come("loose", 30.0, path=4.0)
    e.come("plain")
    assert e.queue() == ["tight", "loose", "plain"]
    e.now = 6.0
    assert e.queue() == ["tight", "loose", "plain"]
    assert not e.late("tight")
    e.now = 6.1
    # Like "plain", which came later.
    assert e.queue() == ["loose", "tight", "plain"]
    assert e.late("tight")
    assert not e.late("loose")


def test_a_late_call_with_a_long_deadline_keeps_its_place():
    e = Engine()
    e.come("long", 2 * DEFAULT_S, path=1.0, left_s=0.5)
    e.come("plain")
    e.now = 0.1
    assert e.queue() == ["plain", "long"]
    assert e.late("long")


def test_service_before_a_preemption_counts_as_part_of_the_path():
    e = Engine()
    e.come("call", 20.0, path=4.0)
    e.start("call")
    assert e.rule.next_at == math.inf
    e.calls.serve({"call": 1}, 6.0, 6.0)
    e.now = 6.0
    e.preempt("call")
    # It was queued at 0 s, and runs as long as before again.
    assert e.rule.next_at == pytest.approx(20.0)


def test_a_call_that_has_left_is_forgotten():
    e = Engine()
    e.come("call", 20.0, path=4.0)
    e.waiting.remove("call")
    e.calls.leave("call", 0.0)
    assert e.rule.next_at == math.inf
    assert e.queue() == []


CALLS = st.lists(
    st.tuples(
        st.one_of(st.none(), st.floats(0, 200)), st.floats(-50, 200), st.floats(0, 100),
        st.floats(0, 100),
    ),
    min_size=2, max_size=10,
)  # fmt: skip


@given(CALLS, st.floats(0, 100))
def test_being_late_is_no_gain(calls, after):
    """A late call precedes a call that can be on time only if it would without its target."""
    e, plain = Engine(), {}
    for number, (deadline, left, path, arrival) in enumerate(calls):
        left_s = None if deadline is None else left
        e.come(f"c{number}", deadline, path, left_s=left_s, arrival_s=arrival)
        plain[f"c{number}"] = arrival + DEFAULT_S
    e.now = after
    queue = e.queue()
    for place, name in enumerate(queue):
        for behind in queue[place + 1 :]:
            if e.late(name) and not e.late(behind):
                assert plain[name] <= e.calls.rank(behind)[1]


@given(CALLS, st.floats(0, 100))
def test_a_call_is_late_exactly_if_its_path_does_not_fit(calls, after):
    e = Engine()
    for number, (deadline, left, path, arrival) in enumerate(calls):
        left_s = None if deadline is None else left
        e.come(f"c{number}", deadline, path, left_s=left_s, arrival_s=arrival)
    e.now = after
    e.queue()
    for number, (deadline, left, path, _) in enumerate(calls):
        assert e.late(f"c{number}") == (deadline is not None and left - path < after)
