"""Rules over an order: they move waiting calls to other places as time passes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from weft_engine.call_state import CallState


class SchedulerView(Protocol):
    """An engine's scheduler as rules see it."""

    def slots(self) -> int:
        """All slots."""

    def blocks_lacking(self) -> int:
        """The KV blocks that the next step lacks; 0 or less if there are enough."""


class Places(Protocol):
    """The places of the calls of one engine."""

    def of(self, sequence: str) -> CallState | None:
        """The call of a sequence."""

    def put_at(self, sequence: str, level: int) -> None:
        """Put a sequence's call behind all calls of its queue with lower levels."""

    def rerank(self, call: CallState, now: float) -> None:
        """Ask the order for a call's rank again."""


class ReorderRule(Protocol):
    """A rule of one engine.

    next_at: when a refresh has something to do, even without an event; infinite if nothing waits
    for time.
    """

    next_at: float

    def note(self, call: CallState, now: float) -> None:
        """A call has arrived, has started, was preempted, or has left."""

    def served(self, tokens: Mapping[str, int]) -> None:
        """A step has run. tokens: what it computed for each sequence."""

    def refresh(self, now: float, scheduler: SchedulerView) -> bool:
        """Move calls to their places. Returns whether a call has moved."""

    def violations(self) -> list[str]:
        """Return inconsistencies in words."""
