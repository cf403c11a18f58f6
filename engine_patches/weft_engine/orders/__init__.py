"""Scheduling orders: which waiting call the engine serves next."""

from weft_engine.call_view import CallView, QueueState
from weft_engine.orders.base import Order
from weft_engine.orders.options import OrderOptions
from weft_engine.orders.registry import ORDERS, build_order, order_names

__all__ = [
    "ORDERS",
    "CallView",
    "Order",
    "OrderOptions",
    "QueueState",
    "build_order",
    "order_names",
]
