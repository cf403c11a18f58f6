"""What orders without queues share."""

from __future__ import annotations

import math

from weft_engine.orders import CallView, QueueState
from weft_engine.orders.base import OneQueue


def test_one_queue_never_moves_anybody():
    order = OneQueue()
    view = CallView(1e9, 1e9, queue=0, quantum_left_s=-1.0, call_waiting_s=1e9)
    assert order.enter(view) == QueueState(0, math.inf)
    assert order.review(view) is None
    assert order.starves_in(view) == math.inf
    assert (order.displaces, order.moving, order.counts_tokens) == (False, False, False)
    assert order.margin is None
