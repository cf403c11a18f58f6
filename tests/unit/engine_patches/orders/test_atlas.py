"""Attained service along the critical path."""

from __future__ import annotations

from weft_engine.orders import CallView
from weft_engine.orders.atlas import Atlas
from weft_engine.queues import QueueLadder


def test_the_critical_path_decides_not_the_sum_over_threads():
    order = Atlas(QueueLadder(4, 1.0, 2.0))
    wide = CallView(program_service_s=100.0, critical_path_s=0.5)
    deep = CallView(program_service_s=4.0, critical_path_s=4.0)
    assert order.enter(wide).queue == 0
    assert order.enter(deep).queue == 2
