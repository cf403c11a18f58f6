"""Load of each tenant: running sequences per weight. Selects the tenant that loses a slot. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

# Tolerance for loads that differ only by rounding.
_ROUNDING: Final = 1e-9


@dataclass(slots=True)
class Tenant:
    """charge: seconds of service per weight at the clock's time `since`. entry: the key of the
    tenant's one valid heap entry; None without one. load: running sequences per weight."""

    name: str
    weight: float = 1.0
    charge: float = 0.0
    since: float = 0.0
    running: set[str] = field(default_factory=set)
    waiting: set[str] = field(default_factory=set)
    entry: float | None = None
    load: float = -1.0


class TenantLoads:
    """The tenants of an engine by load: running sequences per weight."""

    def __init__(self) -> None:
        self._tenants: dict[str, Tenant] = {}
        # The least that one running sequence adds to its tenant's load.
        self._least = math.inf
        self._loads: dict[float, dict[str, None]] = {}

    def charge(self, tenant: str) -> float:
        """Return the charge of an active tenant."""
        return self._tenants[tenant].charge

    def weights_of_running(self) -> dict[str, float]:
        """Return the weights of the tenants with running sequences."""
        return {
            name: self._tenants[name].weight
            for load, names in self._loads.items()
            if load
            for name in names
        }

    def yielding(self, to: str, given: dict[str, int], taken: int, without: set[str]) -> str | None:
        """Return the tenant that cedes a slot to a waiting sequence of tenant `to`, or None. It is
        the tenant with the most running sequences per weight, if it still has at least the load of
        `to` afterwards, and if it received at least as much service. So two tenants never take a
        slot from each other in turn, and a tenant whose prompts took its share waits.

        given, taken: the sequences that each tenant has already ceded, and that `to` has gained.
        without: tenants that have no slot to cede.
        """
        winner = self._tenants[to]
        enough = (len(winner.running) + taken + 1) / winner.weight
        passed = {to, *given, *without}
        found = [self._tenants[name] for name in given if name != to and name not in without]
        for load in sorted(self._loads, reverse=True):
            # With one sequence less, its load would be too small.
            if load < enough + self._least - _ROUNDING:
                break
            group = [self._tenants[name] for name in self._loads[load] if name not in passed]
            if group:
                found += group
                break
        loads = {t.name: (len(t.running) - given.get(t.name, 0)) / t.weight for t in found}
        most = self.charge(to)
        able = [
            t
            for t in found
            if loads[t.name] - 1 / t.weight >= enough - _ROUNDING
            and self.charge(t.name) >= most - _ROUNDING
        ]
        if not able:
            return None
        # Of equal tenants, the one that received more service.
        return max(able, key=lambda t: (loads[t.name], self.charge(t.name), t.name)).name

    @property
    def uneven(self) -> bool:
        """Whether a tenant may have to cede a slot. Cheap; never False if `yielding` finds a
        tenant."""
        loads = self._loads
        return len(loads) > 1 and max(loads) - min(loads) >= 2 * self._least - _ROUNDING

    def heaviest(self, given: dict[str, int], without: set[str]) -> str | None:
        """Return the tenant with the most running sequences per weight; None if no sequence runs.
        given: the sequences that each tenant has already ceded. without: tenants to skip."""
        passed = {*given, *without}
        found = [self._tenants[name] for name in given if name not in without]
        for load in sorted(self._loads, reverse=True):
            group = [self._tenants[name] for name in self._loads[load] if name not in passed]
            if group:
                found += group
                break
        loads = {t.name: (len(t.running) - given.get(t.name, 0)) / t.weight for t in found}
        able = [t for t in found if loads[t.name] > 0]
        # Of equal tenants, the one that received more service.
        most = max(able, key=lambda t: (loads[t.name], self.charge(t.name), t.name), default=None)
        return None if most is None else most.name

    def _load(self, tenant: Tenant) -> None:
        """Update the load after a change of running sequences or weight."""
        self._least = min(self._least, 1 / tenant.weight)
        load = len(tenant.running) / tenant.weight
        if load != tenant.load:
            self._unload(tenant)
            tenant.load = load
            self._loads.setdefault(load, {})[tenant.name] = None

    def _unload(self, tenant: Tenant) -> None:
        names = self._loads.get(tenant.load)
        if names is not None:
            names.pop(tenant.name, None)
            if not names:
                del self._loads[tenant.load]
