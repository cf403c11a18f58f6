"""Queues stay sorted."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from weft_engine.call_table import CallTable
from weft_engine.orders import build_order
from weft_engine.wire import CallContext

compat = pytest.importorskip("weft_engine.compat", exc_type=ImportError)


@dataclass(eq=False)
class Waiting:
    """A minimal waiting request."""

    request_id: str


@given(
    st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=40),
    st.lists(st.integers(0, 4), max_size=3),
    st.lists(st.integers(0, 4), max_size=3),
)
def test_moving_changed_requests_equals_a_full_sort(settled, put_first, put_last):
    """Some change their rank in place, some move to the front, some to the end."""
    ranks: dict[str, tuple[int, float, int]] = {}
    moved: set[Waiting] = set()
    queue: list[Waiting] = []
    for place, (before, moves) in enumerate(sorted(settled)):
        name = f"s{place}"
        # A moved request gets a rank that is independent of its place.
        ranks[name] = ((before * 7 + place) % 5 if moves else before, 0.0, place)
        queue.append(Waiting(name))
        moved |= {queue[-1]} if moves else set()
    for front, rank_ in [*((True, r) for r in put_first), *((False, r) for r in put_last)]:
        name = f"n{len(queue)}"
        ranks[name] = (rank_, 0.0, len(queue))
        moved.add(one := Waiting(name))
        queue.insert(0 if front else len(queue), one)
    expected = sorted(queue, key=lambda r: ranks[r.request_id])
    for found in (queue, deque(queue)):
        compat.rearrange(found, ranks.__getitem__, moved)
        assert list(found) == expected


ORDERS = [
    "fcfs",
    "program_fifo",
    "resident",
    "mlfq",
    "plas",
    "atlas",
    "urgency",
]
OPTIONS = {"queues": 4, "first_quantum_s": 2.0, "growth": 2.0, "beta": 2.0}


def courses(seed: int) -> Iterator[tuple[str, int, float, bool]]:
    """Event, a number that says which, the pause before it, and whether to sort after it. Drawn
    here, since lists of hypothesis' are mostly too short for queues to build up."""
    numbers = random.Random(seed)
    for _ in range(60):
        event, pause = numbers.choice("aaaasspvvlch"), numbers.choice([0.0, 0.4, 3.0])
        yield event, numbers.randrange(30), pause, numbers.random() < 0.5


@settings(max_examples=60)
@given(st.integers(0, 2**32), st.sampled_from(ORDERS))
def test_incremental_order_equals_a_full_sort(seed, policy):
    """The table reports the sequences that moved, and only they are examined. Thirty sequences of
    ten calls of five programs: siblings wait, run and leave beside each other."""
    book, now = CallTable(build_order(policy, OPTIONS)), 0.0
    waiting: list[Any] = []
    running: list[Any] = []

    def find(queue: list[Any], number: int) -> Any:
        return queue.pop(number % len(queue))

    for event, number, pause, sorts in courses(seed):
        now += pause
        name, names = f"s{number}", [s.request_id for s in [*waiting, *running]]
        if event == "a" and name not in names:
            program = CallContext(f"c{number % 10}", f"p{number % 5}", 3.0 * (number % 3), 1.0)
            book.arrive(name, program, now)
            waiting.append(Waiting(name))
        elif event == "s" and waiting:
            running.append(one := find(waiting, number))
            book.start(one.request_id, now)
        elif event == "p" and running:
            waiting.insert(0, one := find(running, number))
            book.preempt(one.request_id, now)
        elif event == "v" and running:
            served = [one.request_id for one in running[: number + 1]]
            book.serve(dict.fromkeys(served, 1), pause, now)
        elif event == "l" and (queue := [waiting, running][number % 2]):
            book.leave(find(queue, number).request_id, now)
        elif event == "c" and waiting:
            book.put_at(waiting[number % len(waiting)].request_id, number % 5)
        elif event == "h" and waiting:
            book.hold(waiting[number % len(waiting)].request_id, number % 2 == 0, 0.0)
        if sorts:
            book.promote(now)
            for queue in (waiting, running):
                moved = {one for one in queue if one.request_id in book.moved}
                expected = sorted(queue, key=lambda one: book.rank(one.request_id))
                compat.rearrange(queue, book.rank, moved)
                assert queue == expected
            book.moved.clear()
