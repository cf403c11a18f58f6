"""Groups of calls by their deadlines: the order `qlm`."""

from __future__ import annotations

import math
import random

from hypothesis import given, settings
from hypothesis import strategies as st
from weft_bench.orders.rivals import qlm
from weft_engine.call_table import CallTable
from weft_engine.orders import OrderOptions
from weft_engine.reorder import ReorderRule
from weft_engine.wire import CallContext


class Engine:
    """Waiting calls of an engine with two slots."""

    def __init__(self) -> None:
        self.calls = CallTable(qlm(OrderOptions(default_budget_s=60.0)))
        self.waiting: list[str] = []

    @property
    def rule(self) -> ReorderRule:
        assert self.calls.rule is not None
        return self.calls.rule

    def slots(self) -> int:
        return 2

    def blocks_lacking(self) -> int:
        return 0

    def come(
        self, name: str, now: float = 0.0, left: float | None = None, cost: float | None = None,
        deadline: float | None = None,
    ) -> None:  # fmt: skip
        context = CallContext(name, name, left_s=left, cost_s=cost, deadline_s=deadline)
        self.calls.arrive(name, context, now)
        self.waiting.append(name)

    def start(self, name: str, now: float) -> None:
        self.waiting.remove(name)
        self.calls.start(name, now)

    def queue(self, now: float = 0.0) -> list[str]:
        """The waiting calls in order."""
        self.rule.refresh(now, self)
        assert self.calls.violations([*self.calls.sequences()]) == []
        return sorted(self.waiting, key=self.calls.rank)


def test_without_a_violation_calls_come_by_arrival():
    e = Engine()
    e.come("a", left=100.0, cost=5.0, deadline=100.0)
    e.come("b", left=20.0, cost=5.0, deadline=20.0)
    e.come("c", left=90.0, cost=5.0, deadline=100.0)
    assert e.queue() == ["a", "b", "c"]
    # The wait is 7.5 s.
    assert e.rule.next_at == math.nextafter(12.5, math.inf)


def test_a_violation_puts_the_group_with_the_least_time_left_first():
    e = Engine()
    e.come("a", left=100.0, cost=5.0, deadline=100.0)
    e.come("b", left=20.0, cost=5.0, deadline=20.0)
    e.come("c", left=90.0, cost=5.0, deadline=100.0)
    e.come("d", left=30.0, cost=30.0, deadline=20.0)
    assert e.queue(0.0) == ["b", "d", "a", "c"]
    # First come, first served inside a group, whatever time its calls have left.
    e.come("e", left=1.0, cost=1.0, deadline=20.0)
    assert e.queue() == ["b", "d", "e", "a", "c"]
    for name in ("b", "d", "e"):
        e.start(name, 0.0)
    assert e.queue() == ["a", "c"]
    e.come("f", left=60.0, cost=1.0, deadline=20.0)
    assert e.queue() == ["a", "c", "f"]


def test_a_target_that_comes_nearer_causes_the_new_order():
    e = Engine()
    e.come("a", left=100.0, cost=5.0, deadline=100.0)
    e.come("b", left=20.0, cost=5.0, deadline=20.0)
    assert e.queue(14.9) == ["a", "b"]
    assert e.queue(15.1) == ["b", "a"]


def test_calls_without_a_target_use_the_default():
    e = Engine()
    e.come("plain")
    e.come("tight", left=1.0, cost=4.0, deadline=8.0)
    assert e.queue() == ["tight", "plain"]
    e.come("later", left=61.0, cost=4.0, deadline=61.0)
    assert e.queue() == ["tight", "plain", "later"]


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32))
def test_any_course_keeps_the_calls_of_a_group_in_their_order(seed):
    e, numbers, now = Engine(), random.Random(seed), 0.0
    groups: dict[str, int] = {}
    for number in range(60):
        now += numbers.choice([0.0, 0.5, 4.0])
        running = [s for s in e.calls.sequences() if s not in e.waiting]
        event = numbers.choice("aaaslp")
        if event == "a":
            deadline = numbers.choice([None, 0.0, 1e-9, 1.0, 9.0, 60.0, 1e12])
            left = numbers.choice([None, -1e12, -3.0, 0.0, 7.0, 1e12])
            groups[f"c{number}"] = -1 if deadline is None else math.frexp(deadline)[1]
            e.come(f"c{number}", now, left, numbers.choice([None, 0.0, 3.0, 1e12]), deadline)
        elif event == "s" and e.waiting:
            e.start(numbers.choice(e.waiting), now)
        elif event == "l" and e.waiting:
            e.calls.leave(e.waiting.pop(), now)
        elif event == "p" and running:
            e.calls.preempt(running[0], now)
            e.waiting.append(running[0])
        order = e.queue(now)
        for group in set(groups.values()):
            mine = [int(name[1:]) for name in order if groups[name] == group]
            assert mine == sorted(mine)
    for name in list(e.calls.sequences()):
        e.calls.leave(name, now)
    e.waiting.clear()
    e.queue(now)
    assert e.rule.next_at == math.inf
