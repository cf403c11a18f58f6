"""A memory budget for items that WebSockets store between two turns."""

from __future__ import annotations

from typing import Protocol


class Keeper(Protocol):
    """An object that stores bytes that it can drop."""

    def forget(self) -> None:
        """Drop the stored bytes."""
        ...


class Kept:
    """Accounts for stored bytes by tenant.

    Beyond a tenant's budget, its oldest entries are dropped. Beyond the budget of the process, the
    oldest entries of the tenant with most bytes are dropped.
    """

    def __init__(self, most: int, most_of_tenant: int) -> None:
        """most, most_of_tenant: budgets in bytes."""
        self._most = most
        self._most_of_tenant = most_of_tenant
        self._sizes: dict[str, dict[Keeper, int]] = {}
        self._totals: dict[str, int] = {}
        self.total = 0

    def keep(self, tenant: str, keeper: Keeper, size: int) -> None:
        """Record that `keeper` stores `size` bytes. Replaces its previous entry."""
        self.release(tenant, keeper)
        if not size:
            return
        self._sizes.setdefault(tenant, {})[keeper] = size
        self._totals[tenant] = self._totals.get(tenant, 0) + size
        self.total += size
        while self._totals.get(tenant, 0) > self._most_of_tenant:
            self._forget_oldest(tenant)
        while self.total > self._most:
            self._forget_oldest(max(self._totals, key=self._totals.__getitem__))

    def release(self, tenant: str, keeper: Keeper) -> None:
        """Remove the entry of `keeper`."""
        sizes = self._sizes.get(tenant, {})
        size = sizes.pop(keeper, 0)
        if not size:
            return
        self.total -= size
        self._totals[tenant] -= size
        if not sizes:
            del self._sizes[tenant], self._totals[tenant]

    def _forget_oldest(self, tenant: str) -> None:
        keeper = next(iter(self._sizes[tenant]))
        self.release(tenant, keeper)
        keeper.forget()
