"""Scheduling orders: which waiting call the engine serves next."""

from weft_engine.orders.base import CallView, Order, QueueState
from weft_engine.orders.registry import DEPRECATED_OPTIONS, ORDERS, build_order, ladder_from

__all__ = [
    "DEPRECATED_OPTIONS",
    "ORDERS",
    "CallView",
    "Order",
    "QueueState",
    "build_order",
    "ladder_from",
]
