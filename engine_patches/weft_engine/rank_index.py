"""Names in the order of their ranks, of which few change at a time. Pure."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator

from weft_engine.call_table import Rank


class RankIndex:
    """A set that knows its best ones. To be told of whoever may have another rank (`stir`): it is
    asked for that rank when the best are wanted, and nobody else is."""

    def __init__(self, rank: Callable[[str], Rank]) -> None:
        self._rank = rank
        self._filed: dict[str, Rank] = {}
        self._order: list[tuple[Rank, str]] = []
        self._stale: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._filed

    def __len__(self) -> int:
        return len(self._filed)

    def names(self) -> set[str]:
        """All of them."""
        return set(self._filed)

    def add(self, name: str) -> None:
        """Take one in, by its rank of now."""
        self.discard(name)
        rank = self._filed[name] = self._rank(name)
        insort(self._order, (rank, name))

    def fill(self, names: Iterable[str]) -> None:
        """Take in many at once, by their ranks of now, in the place of all that were here."""
        self.clear()
        self._filed = {name: self._rank(name) for name in names}
        self._order = sorted((rank, name) for name, rank in self._filed.items())

    def discard(self, name: str) -> None:
        """Forget one, if it is here."""
        rank = self._filed.pop(name, None)
        if rank is not None:
            del self._order[bisect_left(self._order, (rank, name))]

    def clear(self) -> None:
        """Forget all."""
        self._filed.clear()
        self._order.clear()
        self._stale.clear()

    def invalidate(self, names: Iterable[str]) -> None:
        """These may have other ranks from now on, whether they are here or not."""
        self._stale.update(self._filed.keys() & names)

    def best(self, count: int) -> list[str]:
        """So many of the best, the best first; of equal ranks by name."""
        self._settle()
        return [name for _, name in self._order[:count]]

    def ordered(self, start: int = 0) -> Iterator[str]:
        """All of them but for so many of the best, the best first; not to be changed meanwhile."""
        self._settle()
        return (self._order[at][1] for at in range(start, len(self._order)))

    def _settle(self) -> None:
        for name in self._stale:
            if name in self._filed and self._filed[name] != self._rank(name):
                self.add(name)
        self._stale.clear()
