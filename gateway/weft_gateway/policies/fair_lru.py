"""Who gives way where tenants share room and it is full: the one that has most of it. Pure.

A tenant alone may have it all; when others come, each of them can have an equal share, however fast
one of them asks.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Reversible
from typing import Generic, TypeVar

_K = TypeVar("_K", bound=Hashable)


class FairLRU(Generic[_K]):
    """Names of what is kept, by tenant, in the order of their use. limit: of all together, at
    least 1. Every step costs the same however many tenants there are."""

    __slots__ = ("_limit", "_most", "_of", "_sizes", "_total")

    def __init__(self, limit: int) -> None:
        if limit < 1:
            raise ValueError(f"limit must be positive, got {limit}")
        self._limit = limit
        self._total = 0
        self._of: dict[str, OrderedDict[_K, None]] = {}
        # The tenants that have so many, and the most that one has.
        self._sizes: dict[int, dict[str, None]] = {}
        self._most = 0

    def __len__(self) -> int:
        return self._total

    def put(self, tenant: str, name: _K) -> tuple[str, _K] | None:
        """Keep one, as the latest of its tenant. Returns the one that has to go for it: the oldest
        of the tenant that has most, or, where it has none before this one, the same again."""
        own = self._of.get(tenant)
        if own is None:
            own = self._of[tenant] = OrderedDict()
        if name in own:
            own.move_to_end(name)
            return None
        own[name] = None
        now, most = len(own), self._most
        if self._total < self._limit:
            self._total += 1
            self._count(tenant, now - 1, now)
            return None
        if now > most:
            # Where one has it all, or all have the same: nobody's number changes.
            return tenant, own.popitem(last=False)[0]
        largest, _ = self._sizes[most].popitem()
        if now == most and now > 1:
            # As usual where many ask: the two change places.
            self._sizes[most][tenant] = None
            less = self._sizes[most - 1]
            del less[tenant]
            less[largest] = None
        else:
            self._sizes[most][largest] = None
            self._count(tenant, now - 1, now)
            self._count(largest, most, most - 1)
        there = self._of[largest]
        oldest, _ = there.popitem(last=False)
        if not there:
            del self._of[largest]
        return largest, oldest

    def oldest(self, tenant: str) -> _K | None:
        """The one that a tenant used longest ago, None where he has none."""
        own = self._of.get(tenant)
        return next(iter(own)) if own else None

    def of(self, tenant: str) -> Reversible[_K]:
        """All of a tenant's, the one used longest ago first."""
        return self._of.get(tenant, ())

    def use(self, tenant: str, name: _K) -> None:
        """One that is kept was used: it is the latest of its tenant. KeyError."""
        self._of[tenant].move_to_end(name)

    def drop(self, tenant: str, name: _K) -> None:
        """Forget one that is kept. KeyError."""
        own = self._of[tenant]
        del own[name]
        self._total -= 1
        self._count(tenant, len(own) + 1, len(own))
        if not own:
            del self._of[tenant]

    def _count(self, tenant: str, before: int, now: int) -> None:
        if before:
            same = self._sizes[before]
            del same[tenant]
            if not same:
                del self._sizes[before]
        if now:
            self._sizes.setdefault(now, {})[tenant] = None
        if now > self._most or self._most not in self._sizes:
            self._most = now
