"""Deadlines by name. Pure: callers pass the time."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from math import inf
from typing import Final

# Stale heap entries beyond the number of names before a clean-up. An entry becomes stale when its
# name gets another deadline or none.
_STALE: Final = 64


class Deadlines:
    """At most one deadline per name."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []

    def __len__(self) -> int:
        return len(self._until)

    @property
    def first(self) -> float:
        """The earliest deadline; infinite without any."""
        while self._heap and self._until.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else inf

    def set(self, name: str, until: float) -> None:
        """Set or replace the deadline of a name."""
        self._until[name] = until
        heappush(self._heap, (until, name))
        if len(self._heap) > 2 * len(self._until) + _STALE:
            self._heap = [(instant, known) for known, instant in self._until.items()]
            heapify(self._heap)

    def drop(self, name: str) -> None:
        """Remove the deadline of a name, if it has one."""
        self._until.pop(name, None)

    def clear(self) -> None:
        """Remove all deadlines."""
        self._until.clear()
        self._heap.clear()

    def due(self, now: float) -> list[str]:
        """Remove and return the names whose deadline has passed by `now`."""
        ended = []
        while self._heap and self._heap[0][0] <= now:
            until, name = heappop(self._heap)
            if self._until.get(name) == until:
                del self._until[name]
                ended.append(name)
        return ended
