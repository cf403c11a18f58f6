"""Limits retries to a share of the recent calls: a failure must not multiply the load. Pure.

The budget is a token bucket: each call adds `ratio` tokens, and a retry takes one. It is full at
the start, so that a gateway with few calls can retry, too.
"""

from __future__ import annotations

from typing import Final

# Retries that a full budget allows at once: the calls that reach a replica at the moment it stops.
BURST: Final = 100.0


class RetryBudget:
    """The retries that are left. ratio: retries per call in the long run; 0: no retries."""

    def __init__(self, ratio: float) -> None:
        self._ratio = ratio
        self._left = BURST if ratio else 0.0

    def add_call(self) -> None:
        """Count a call."""
        self._left = min(BURST, self._left + self._ratio)

    def take(self) -> bool:
        """Take one retry. Returns False if none is left."""
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True
