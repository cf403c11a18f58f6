"""Orders by name."""

from __future__ import annotations

import pytest
from weft_engine.orders import ORDERS, build_order
from weft_engine.orders.plas import Plas
from weft_engine.queues import QueueLadder
from weft_engine.wire import ORDER_NAMES


@pytest.mark.parametrize("name", sorted(ORDERS))
def test_every_order_is_built_by_its_name(name):
    assert build_order(name, {"experiments": True}).name == name


def test_the_gateway_knows_the_same_names():
    assert set(ORDER_NAMES) == set(ORDERS)


def test_orders_are_built_with_their_options():
    order = build_order("plas", {"queues": 2, "first_quantum_s": 7, "beta": 3})
    assert order == Plas(QueueLadder(2, 7.0, 2.0), 3.0)


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ValueError, match="atlas, fcfs, mlfq, plas, program_fifo, srpt"):
        build_order("lottery", {})


@pytest.mark.parametrize("value", ["7", True, float("nan"), float("inf"), None, 0])
def test_an_option_that_is_no_number_in_range_is_named(value):
    with pytest.raises(ValueError, match="beta"):
        build_order("plas", {"beta": value})


def test_an_unknown_option_is_named():
    with pytest.raises(ValueError, match=r"first_quantum'.*first_quantum_s"):
        build_order("plas", {"first_quantum": 1.0})
