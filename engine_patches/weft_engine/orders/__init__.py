"""Orders: which waiting call an engine serves next. One pure module each; `registry` names them."""

from weft_engine.orders.base import CallView, Order, QueueState
from weft_engine.orders.registry import ORDERS, build_order, ladder_from

__all__ = ["ORDERS", "CallView", "Order", "QueueState", "build_order", "ladder_from"]
