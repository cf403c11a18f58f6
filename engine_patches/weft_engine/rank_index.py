"""A sorted set of names whose ranks change, a few at a time. Pure."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator

from weft_engine.call_state import Rank


class RankIndex:
    """Names in the order of their ranks. After `invalidate`, the rank of a name is read again at
    the next query. Not a heap, because names leave from the middle and queries do not consume."""

    def __init__(self, rank: Callable[[str], Rank]) -> None:
        self._rank = rank
        self._filed: dict[str, Rank] = {}
        self._order: list[tuple[Rank, str]] = []
        self._stale: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._filed

    def __len__(self) -> int:
        return len(self._filed)

    def add(self, name: str) -> None:
        """Add a name with its current rank."""
        self.discard(name)
        rank = self._filed[name] = self._rank(name)
        insort(self._order, (rank, name))

    def fill(self, names: Iterable[str]) -> None:
        """Replace all names, with their current ranks."""
        self.clear()
        self._filed = {name: self._rank(name) for name in names}
        self._order = sorted((rank, name) for name, rank in self._filed.items())

    def discard(self, name: str) -> None:
        """Remove a name, if it is in the set."""
        rank = self._filed.pop(name, None)
        if rank is not None:
            del self._order[bisect_left(self._order, (rank, name))]

    def clear(self) -> None:
        """Remove all names."""
        self._filed.clear()
        self._order.clear()
        self._stale.clear()

    def invalidate(self, names: Iterable[str]) -> None:
        """The ranks of these names may have changed. Names outside the set are ignored."""
        self._stale.update(self._filed.keys() & names)

    def ordered(self, start: int = 0) -> Iterator[str]:
        """The names by rank, equal ranks by name, from position `start` on. Do not change the set
        meanwhile."""
        self._settle()
        return (self._order[at][1] for at in range(start, len(self._order)))

    def _settle(self) -> None:
        for name in self._stale:
            if name in self._filed and self._filed[name] != self._rank(name):
                self.add(name)
        self._stale.clear()
