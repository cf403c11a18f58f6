"""Orders: which waiting call an engine serves next. One pure module each; `registry` names them."""

from engine_patches.orders.base import CallView, Order, Standing
from engine_patches.orders.registry import ORDERS, build_order, ladder_from

__all__ = ["ORDERS", "CallView", "Order", "Standing", "build_order", "ladder_from"]
