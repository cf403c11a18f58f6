"""Layers over an order: rules that move waiting calls to other places as time passes. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from weft_engine.late_calls import LateCalls
from weft_engine.orders import Order
from weft_engine.slo_groups import SloGroups

if TYPE_CHECKING:
    from weft_engine.call_state import CallState
    from weft_engine.call_table import CallTable


class Room(Protocol):
    """The slots of an engine."""

    def slots(self) -> int:
        """All slots."""
        ...


class CallLayer(Protocol):
    """A layer of one engine.

    next_at: when a refresh has something to do, even without an event; infinite if nothing waits
    for time.
    """

    next_at: float

    def note(self, call: CallState, now: float) -> None:
        """A call has arrived, has started, was preempted, or has left."""
        ...

    def refresh(self, now: float, room: Room) -> bool:
        """Move calls to their places. Returns whether a call has moved."""
        ...

    def violations(self) -> list[str]:
        """Return inconsistencies in words."""
        ...


def build_layer(order: Order, table: CallTable) -> CallLayer | None:
    """Return the layer of an order, without calls; None if it has none."""
    if order.targets:
        return LateCalls(table)
    return SloGroups(order.default_left_s, table) if order.groups else None
