"""A budget for what WebSockets keep between two turns."""

from __future__ import annotations

from typing import Protocol


class Keeper(Protocol):
    """Something that keeps bytes which it can do without."""

    def forget(self) -> None:
        """Let go of them."""
        ...


class Kept:
    """Bytes that are kept, by tenant.

    Beyond a tenant's budget, its oldest are forgotten. Beyond the budget of the process, the oldest
    of the tenant that keeps most are forgotten.
    """

    def __init__(self, most: int, most_of_tenant: int) -> None:
        """most, most_of_tenant: bytes."""
        self._most = most
        self._most_of_tenant = most_of_tenant
        self._sizes: dict[str, dict[Keeper, int]] = {}
        self._totals: dict[str, int] = {}
        self.total = 0

    def keep(self, tenant: str, keeper: Keeper, size: int) -> None:
        """`keeper` now keeps `size` bytes, in the place of what it kept before."""
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
        """`keeper` keeps nothing any more."""
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
