"""What the orders over queues share, whatever they count as attained."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft_engine.orders import CallView
from weft_engine.orders.atlas import Atlas
from weft_engine.orders.mlfq import Mlfq
from weft_engine.orders.plas import Plas
from weft_engine.queues import QueueLadder

KINDS = [Plas, Atlas, Mlfq]
SECONDS = st.floats(0, 1e6)


@pytest.mark.parametrize("beta", [0, -1.0])
def test_beta_must_be_positive(beta):
    with pytest.raises(ValueError, match="beta"):
        Plas(beta=beta)


@given(st.sampled_from(KINDS), SECONDS, SECONDS, SECONDS, SECONDS, st.integers(0, 7), SECONDS)
def test_after_the_wait_that_is_missing_a_call_is_promoted_and_not_before(
    kind, service, waiting, call_service, call_waiting, queue, path
):
    order = kind(QueueLadder(8), beta=3.0)

    def view(more):
        return CallView(
            service, waiting, path, queue=queue, quantum_left_s=1.0,
            call_service_s=call_service, call_waiting_s=call_waiting + more,
        )  # fmt: skip

    missing = order.starves_in(view(0.0))
    if queue == 0:
        assert missing == math.inf
        return
    # A little beyond, so that rounding does not decide.
    standing = order.review(view(max(missing, 0.0) * (1 + 1e-9) + 1e-3))
    assert standing is not None
    assert (standing.queue, standing.promoted) == (0, True)
    if missing > 1e-3 * (1 + service + waiting + path):
        assert order.review(view(missing * 0.99)) is None
