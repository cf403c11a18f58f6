"""Multi-level feedback queue per call, blind to programs (the baseline of Agentix 6.1)."""

from __future__ import annotations

from dataclasses import dataclass

from weft_engine.orders.base import CallView
from weft_engine.orders.ladder import LadderOrder


@dataclass(frozen=True, slots=True)
class Mlfq(LadderOrder):
    """Every call starts in the first queue; only its own service moves it down."""

    name: str = "mlfq"

    def attained(self, view: CallView) -> float:
        """Nothing: programs do not count."""
        return 0.0

    def waited(self, view: CallView) -> float:
        """Nothing: programs do not count."""
        return 0.0
