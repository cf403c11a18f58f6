"""LRU eviction that shares capacity fairly between tenants. When full, the tenant with the largest
entries together loses its oldest ones. Pure.

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
    """Names of entries by tenant, in order of use. limit: of the sizes of all entries together."""

    __slots__ = ("_heap", "_limit", "_of", "_stated", "_total", "_totals")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._total = 0
        self._of: dict[str, OrderedDict[_K, int]] = {}
        self._totals: dict[str, int] = {}
        # Tenants by the size of their entries, negative. Each tenant has one that states at least
        # its present size; others are outdated.
        self._heap: list[tuple[int, str]] = []
        self._stated: dict[str, int] = {}

    def __len__(self) -> int:
        """Return the size of all entries."""
        return self._total

    def put(self, tenant: str, name: _K, size: int = 1) -> list[tuple[str, _K]]:
        """Add or replace an entry as its tenant's latest. Returns the evicted entries: this one if
        it exceeds the limit alone.
        """
        own = self._of.get(tenant)
        if own is not None and name in own:
            self.drop(tenant, name)
            own = self._of.get(tenant)
        if size > self._limit:
            return [(tenant, name)]
        if own is None:
            own = self._of[tenant] = OrderedDict()
        own[name] = size
        totals = self._totals
        totals[tenant] = totals.get(tenant, 0) + size
        self._total += size
        gone = []
        while self._total > self._limit:
            largest = self._largest()
            if totals[largest] <= totals[tenant]:
                # The usual case. It changes no tenant's size, and so nothing in the heap.
                largest = tenant
            oldest = next(iter(self._of[largest]))
            self.drop(largest, oldest)
            gone.append((largest, oldest))
        now = totals.get(tenant, 0)
        if now > self._stated.get(tenant, 0):
            self._state(tenant, now)
        return gone

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
        size = own.pop(name)
        self._total -= size
        self._totals[tenant] -= size
        if not own:
            del self._of[tenant], self._totals[tenant]

    def _state(self, tenant: str, now: int) -> None:
        self._stated[tenant] = now
        heappush(self._heap, (-now, tenant))
        if len(self._heap) > 2 * len(self._totals) + 64:
            self._stated = self._totals.copy()
            self._heap = [(-most, each) for each, most in self._totals.items()]
            heapify(self._heap)

    def _largest(self) -> str:
        """Return the tenant with the largest entries, except for the one whose entry is added."""
        while True:
            most, tenant = self._heap[0]
            now = self._totals.get(tenant, 0)
            if now >= -most:
                return tenant
            heappop(self._heap)
            if self._stated.get(tenant) == -most:
                self._state(tenant, now)
