"""Divides the ordered requests of a batch among replicas. Pure.

Neighbours in the order have common prompts, so each replica takes a span of neighbours from its
beginning. A replica without a span takes the second half of the longest rest.
"""

from __future__ import annotations

from collections.abc import Collection


class Spans:
    """The positions of an order that are left, as one span per replica."""

    def __init__(self, count: int) -> None:
        """count: length of the order."""
        # A span that no replica has begun, and those of the replicas: first position and end.
        self._spans: dict[str, tuple[int, int]] = {"": (0, count)} if count else {}
        self.left = count

    def take(self, replica: str, able: Collection[str]) -> int | None:
        """Return the next position for a replica, None if none is left. able: the replicas that
        take calls now. The spans of others are free.
        """
        span = self._spans.get(replica)
        if span is None:
            span = self._claim(replica, able)
            if span is None:
                return None
        first, end = span
        if first + 1 < end:
            self._spans[replica] = (first + 1, end)
        else:
            self._spans.pop(replica, None)
        self.left -= 1
        return first

    def _claim(self, replica: str, able: Collection[str]) -> tuple[int, int] | None:
        """Take over the span of a replica that is away, or a part of the longest one."""
        if not self._spans:
            return None
        free = [name for name in self._spans if name not in able]
        owner = max(free or self._spans, key=lambda name: self._length(name))
        first, end = self._spans[owner]
        # The replicas that have no span yet share a free one.
        waiting = len([name for name in able if name not in self._spans]) or 1
        parts = waiting if owner in free else 2
        middle = end - max(1, (end - first) // parts)
        if middle == first:
            del self._spans[owner]
        else:
            self._spans[owner] = (first, middle)
        return middle, end

    def _length(self, name: str) -> int:
        first, end = self._spans[name]
        return end - first
