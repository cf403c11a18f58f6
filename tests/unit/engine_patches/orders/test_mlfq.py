"""The baseline that is blind to programs."""

from __future__ import annotations

from weft_engine.orders import CallView
from weft_engine.orders.mlfq import Mlfq
from weft_engine.queues import QueueLadder


def test_every_call_starts_in_the_first_queue_whatever_its_program_used():
    order = Mlfq(QueueLadder(4, 1.0, 2.0), beta=2.0)
    assert order.enter(CallView(1e6, 1e6, 1e6)).queue == 0
    # Nor does what the program waited promote its call.
    view = CallView(0.0, 1e6, queue=1, quantum_left_s=1.0, call_service_s=1.0, call_waiting_s=1.0)
    assert order.review(view) is None
