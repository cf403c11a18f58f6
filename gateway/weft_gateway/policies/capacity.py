"""How long a new program would wait for a replica at which calls wait already. Pure.

The ends of calls tell how fast the queue moves. Only gaps between two ends count, between which
calls waited all the time: otherwise the replica was not at its limit.
"""

from __future__ import annotations

from collections import deque
from math import ceil
from typing import Final

# A pace is known from this number of gaps, and follows about as many as the largest.
_FEWEST: Final = 8
_MOST: Final = 64
# The clients of OpenAI obey at most 120 s.
_LEAST_RETRY_S: Final = 1.0
_MOST_RETRY_S: Final = 45.0
# The share of this time by which refused clients return at different times.
_SPREAD: Final = 0.33


class Pace:
    """The pace at which calls of one replica end while others wait for it."""

    def __init__(self) -> None:
        self._gaps: deque[float] = deque(maxlen=_MOST)
        self._last: float | None = None

    def ended(self, now: float, waiting: int) -> None:
        """A call has ended. waiting: the calls that waited until then."""
        if waiting <= 0:
            self._last = None
            return
        if self._last is not None:
            self._gaps.append(now - self._last)
        self._last = now

    def wait_s(self, waiting: int) -> float:
        """Return the time until a call behind this number of others starts; 0 if unknown."""
        gaps = self._gaps
        return 0.0 if len(gaps) < _FEWEST else max(0, waiting) * sum(gaps) / len(gaps)


def retry_after_s(excess_s: float, chance: float) -> int:
    """Return when a refused client comes back, seconds. excess_s: by how much the wait is too long.
    chance: from 0 to 1.
    """
    return ceil(min(max(excess_s, _LEAST_RETRY_S), _MOST_RETRY_S) * (1.0 + _SPREAD * chance))
