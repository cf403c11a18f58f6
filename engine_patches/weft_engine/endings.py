"""Expiry of programs' reuse priorities. Pure: callers pass the time.

The engine expires priorities, because the gateway that set them may be gone by then.
"""

from __future__ import annotations

from collections import OrderedDict
from heapq import heapify, heappop, heappush
from typing import Final

MOST: Final = 4096
# Stale heap entries beyond the number of programs before a clean-up. Entries become stale when a
# priority is renewed or withdrawn.
_STALE: Final = 64


class Endings:
    """The expiry times of priorities, for at most `most` programs."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        # Least recently set first.
        self._until: OrderedDict[str, float] = OrderedDict()
        self._heap: list[tuple[float, str]] = []

    def __len__(self) -> int:
        return len(self._until)

    def set_end(self, program: str, until: float) -> list[str]:
        """Set or replace the expiry of a program's priority. Returns the programs whose priority
        ends now to respect the limit: the least recently set ones."""
        self._until[program] = until
        self._until.move_to_end(program)
        heappush(self._heap, (until, program))
        over = []
        while len(self._until) > self._most:
            over.append(self._until.popitem(last=False)[0])
        if len(self._heap) > 2 * len(self._until) + _STALE:
            self._heap = [(instant, name) for name, instant in self._until.items()]
            heapify(self._heap)
        return over

    def drop(self, program: str) -> None:
        """Remove the expiry: the program's priority is permanent, or the program is gone."""
        self._until.pop(program, None)

    def due(self, now: float) -> list[str]:
        """Remove and return the programs whose priority has expired by `now`."""
        ended = []
        while self._heap and self._heap[0][0] <= now:
            until, program = heappop(self._heap)
            if self._until.get(program) == until:
                del self._until[program]
                ended.append(program)
        return ended
