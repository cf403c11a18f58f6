"""Orders: which waiting call an engine serves next. One pure module each; `registry` names them."""

from weft_engine.orders.base import CallView, Order, Standing
from weft_engine.orders.registry import ORDERS, build_order, ladder_from

__all__ = ["ORDERS", "CallView", "Order", "Standing", "build_order", "ladder_from"]
