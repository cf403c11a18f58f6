"""LRU eviction that shares capacity fairly between tenants. When full, the tenant with most entries
loses its oldest one. Pure.

A single tenant may use the full capacity. With several tenants, each can hold an equal share,
regardless of the request rate of the others.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Reversible
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

_K = TypeVar("_K", bound=Hashable)


class FairLRU(Generic[_K]):
    """Names of entries by tenant, in order of use. limit: of all tenants together, at least 1. The
    cost of an operation does not depend on the number of tenants.
    """

    __slots__ = ("_limit", "_most", "_of", "_sizes", "_total")

    def __init__(self, limit: int) -> None:
        if limit < 1:
            raise ValueError(f"limit must be positive, got {limit}")
        self._limit = limit
        self._total = 0
        self._of: dict[str, OrderedDict[_K, None]] = {}
        # Tenants by their number of entries, and the largest such number.
        self._sizes: dict[int, dict[str, None]] = {}
        self._most = 0

    def __len__(self) -> int:
        return self._total

    def put(self, tenant: str, name: _K) -> tuple[str, _K] | None:
        """Add an entry as its tenant's latest. Returns the evicted entry: the oldest one of the
        tenant with most entries. If no older entry exists, the new one is evicted.
        """
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
            # One tenant holds everything, or all hold the same number: no tenant's number changes.
            return tenant, own.popitem(last=False)[0]
        largest, _ = self._sizes[most].popitem()
        if now == most and now > 1:
            # The usual case with many tenants: the two tenants swap their numbers.
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

    def count(self, tenant: str) -> int:
        """Return a tenant's number of entries."""
        return len(self._of.get(tenant, ()))

    def oldest(self, tenant: str) -> _K | None:
        """Return a tenant's least recently used entry, None if it has no entries."""
        own = self._of.get(tenant)
        return next(iter(own)) if own else None

    def of(self, tenant: str) -> Reversible[_K]:
        """Return a tenant's entries, least recently used first."""
        return self._of.get(tenant, ())

    def use(self, tenant: str, name: _K) -> None:
        """Make an existing entry its tenant's latest. Raises KeyError."""
        self._of[tenant].move_to_end(name)

    def drop(self, tenant: str, name: _K) -> None:
        """Remove an existing entry. Raises KeyError."""
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


class FairBytes(Generic[_K]):
    """The same for entries of different sizes: when full, the tenant with most bytes loses its
    oldest entries. limit: bytes of all tenants together.
    """

    __slots__ = ("_heap", "_limit", "_of", "_totals", "total")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._of: dict[str, OrderedDict[_K, int]] = {}
        self._totals: dict[str, int] = {}
        # Tenants by bytes, negative. An entry may be outdated; each tenant has one that states at
        # least its present bytes.
        self._heap: list[tuple[int, str]] = []
        self.total = 0

    def put(self, tenant: str, name: _K, size: int) -> list[tuple[str, _K]]:
        """Add or replace an entry as its tenant's latest. Returns the evicted entries: this one if
        it exceeds the limit alone.
        """
        own = self._of.get(tenant)
        if own is not None and name in own:
            self.drop(tenant, name)
        if size > self._limit:
            return [(tenant, name)]
        self._of.setdefault(tenant, OrderedDict())[name] = size
        self._totals[tenant] = now = self._totals.get(tenant, 0) + size
        self.total += size
        if len(self._heap) > 2 * len(self._totals) + 64:
            self._heap = [(-most, each) for each, most in self._totals.items()]
            heapify(self._heap)
        else:
            heappush(self._heap, (-now, tenant))
        gone = []
        while self.total > self._limit:
            largest = self._largest()
            oldest = next(iter(self._of[largest]))
            self.drop(largest, oldest)
            gone.append((largest, oldest))
        return gone

    def use(self, tenant: str, name: _K) -> None:
        """Make an existing entry its tenant's latest. Raises KeyError."""
        self._of[tenant].move_to_end(name)

    def drop(self, tenant: str, name: _K) -> None:
        """Remove an existing entry. Raises KeyError."""
        own = self._of[tenant]
        size = own.pop(name)
        self.total -= size
        self._totals[tenant] -= size
        if not own:
            del self._of[tenant], self._totals[tenant]

    def _largest(self) -> str:
        while True:
            most, tenant = self._heap[0]
            now = self._totals.get(tenant)
            if now == -most:
                return tenant
            heappop(self._heap)
            if now is not None:
                heappush(self._heap, (-now, tenant))
