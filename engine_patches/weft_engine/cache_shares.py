"""Which tenants use a cache at present, and which part of it each may claim. Pure.

Time is counted in blocks that were reused. A tenant without a call for long enough is idle and
claims nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

# Tenants that are remembered; beyond that the least recently active is forgotten.
_KEPT_TENANTS: Final = 4096


@dataclass(slots=True)
class _Tenant:
    weight: float
    seen: int


class CacheShares:
    """Weights and activity of tenants. idle_after: reused blocks after which a tenant without a
    call is idle. pinning: tenants with pinned blocks, a live view: they stay active."""

    def __init__(self, idle_after: int, pinning: Collection[str] = ()) -> None:
        self._idle_after = idle_after
        self._pinning = pinning
        # The least recently active first.
        self._tenants: OrderedDict[str, _Tenant] = OrderedDict()

    def seen(self, tenant: str, weight: float, clock: int) -> None:
        """A call of the tenant arrived or ended. clock: blocks reused so far."""
        self._tenants[tenant] = _Tenant(weight, clock)
        self._tenants.move_to_end(tenant)
        if len(self._tenants) > _KEPT_TENANTS:
            self._tenants.popitem(last=False)

    def weight(self, tenant: str | None, clock: int) -> float:
        """The tenant's weight among active tenants; 0 if it is idle."""
        known = None if tenant is None else self._tenants.get(tenant)
        if known is None:
            return 0.0
        active = clock - known.seen <= self._idle_after or tenant in self._pinning
        return known.weight if active else 0.0

    def share(self, tenant: str, clock: int) -> float:
        """The part of the cache that a tenant may claim, above 0 to 1: its weight over the weights
        of all active tenants, itself included."""
        known = self._tenants.get(tenant)
        own = 1.0 if known is None else known.weight
        others = 0.0
        for name in reversed(self._tenants):
            if clock - self._tenants[name].seen > self._idle_after:
                # All before it are idle too. Idle tenants with pins are counted below.
                break
            others += self._tenants[name].weight if name != tenant else 0.0
        for name in self._pinning:
            kept = self._tenants.get(name)
            if kept is not None and name != tenant and clock - kept.seen > self._idle_after:
                others += kept.weight
        return own / (own + others)
