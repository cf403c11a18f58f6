"""Scheduling orders: which waiting call the engine serves next."""

from weft_engine.orders.base import CallView, Order, QueueState
from weft_engine.orders.options import OrderOptions
from weft_engine.orders.registry import ORDERS, build_order

__all__ = ["ORDERS", "CallView", "Order", "OrderOptions", "QueueState", "build_order"]
