"""Late calls: the rule of the order `slack`, which ranks programs by their targets. Pure.

A call is late when its target passes before the predicted path from this call on can end. Then the
order ranks it as if it had no target, or by its target if that is later. So a late call precedes a
call that can be on time only if it would do so without its target, and being late is no gain.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from weft_engine.call_state import CallState
from weft_engine.deadlines import Deadlines
from weft_engine.reorder import Places, SchedulerView


class LateCalls:
    """Knows when the waiting calls of one engine become late. next_at: see ReorderRule. An event
    costs O(log calls)."""

    def __init__(self, places: Places) -> None:
        self.next_at = math.inf
        self._places = places
        self._waiting: dict[str, CallState] = {}
        self._coming = Deadlines()

    def note(self, call: CallState, now: float) -> None:
        """A call has arrived, has started, was preempted, or has left."""
        latest = None if call.late else call.view(now).latest_start_s
        if latest is None:
            return
        name = call.context.call
        if call.waiting_since is None:
            self._coming.drop(name)
            self._waiting.pop(name, None)
        else:
            self._waiting[name] = call
            self._coming.set(name, math.nextafter(latest, math.inf))
        self.next_at = self._coming.first

    def served(self, tokens: Mapping[str, int]) -> None:
        """Service makes no waiting call late."""

    def refresh(self, now: float, scheduler: SchedulerView) -> bool:
        """Rank the calls that have become late as such. Returns whether a call has moved."""
        moved = False
        for name in self._coming.due(now):
            call = self._waiting.pop(name)
            rank, call.late = call.rank, True
            self._places.rerank(call, now)
            moved |= call.rank != rank
        self.next_at = self._coming.first
        return moved

    def violations(self) -> list[str]:
        """Return inconsistencies in words."""
        gone = [name for name, call in self._waiting.items() if not call.waiting or call.late]
        return [f"{name} does not become late" for name in gone]
