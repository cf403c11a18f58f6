"""The ladder of queues."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st
from weft_engine.orders.ladder import QueueLadder


def test_quanta_grow_and_the_last_queue_has_none():
    ladder = QueueLadder(count=3, first_quantum_s=2.0, growth=3.0)
    assert [ladder.quantum(i) for i in range(3)] == [2.0, 6.0, math.inf]
    assert [ladder.index(s) for s in (0, 1.99, 2.0, 7.99, 8.0, 1e9)] == [0, 0, 1, 1, 2, 2]


def test_one_queue_is_first_come_first_served():
    ladder = QueueLadder(1, 0.5, 2.0)
    assert ladder.index(1e12) == 0
    assert ladder.quantum(0) == math.inf


@given(
    st.integers(1, 12), st.floats(0.001, 10), st.floats(1, 4), st.floats(0, 1e6, allow_nan=False)
)
def test_a_service_lies_between_its_queues_floor_and_the_next(count, first, growth, service):
    ladder = QueueLadder(count, first, growth)
    queue = ladder.index(service)
    floor = sum(ladder.quantum(i) for i in range(queue))
    assert floor <= service or math.isclose(floor, service)
    assert service < floor + ladder.quantum(queue)
