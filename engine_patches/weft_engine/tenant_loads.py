"""How many sequences each tenant runs for its weight, and which tenant gives way. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

# Of loads that are equal but for their last digits.
_ROUNDING: Final = 1e-9


@dataclass(slots=True)
class Tenant:
    """charge: seconds of service over weight, as of the clock's reading `since`. entry: the key of
    its one valid entry in the heap; None where it has none. load: running sequences over weight."""

    name: str
    weight: float = 1.0
    charge: float = 0.0
    since: float = 0.0
    running: set[str] = field(default_factory=set)
    waiting: set[str] = field(default_factory=set)
    entry: float | None = None
    load: float = -1.0


class TenantLoads:
    """The tenants of an engine by their loads: running sequences over weight."""

    def __init__(self) -> None:
        self._tenants: dict[str, Tenant] = {}
        # What a running sequence adds at least to its tenant's load.
        self._least = math.inf
        self._loads: dict[float, dict[str, None]] = {}

    def charge(self, tenant: str) -> float:
        """What an active tenant was charged so far."""
        return self._tenants[tenant].charge

    def weights_of_running(self) -> dict[str, float]:
        """The weights of tenants that run sequences."""
        return {
            name: self._tenants[name].weight
            for load, names in self._loads.items()
            if load
            for name in names
        }

    def yielding(self, to: str, given: dict[str, int], taken: int, without: set[str]) -> str | None:
        """The tenant that gives one of its slots to a waiting sequence of tenant `to`: the one that
        runs the most sequences for its weight, if even afterwards it runs at least as many as `to`
        does then. So two tenants never take a slot from each other in turn. None if there is none.

        given, taken: how many sequences tenants have given up, and `to` has got, already. without:
        tenants that have nothing to give.
        """
        winner = self._tenants[to]
        enough = (len(winner.running) + taken + 1) / winner.weight
        passed = {to, *given, *without}
        found = [self._tenants[name] for name in given if name != to and name not in without]
        for load in sorted(self._loads, reverse=True):
            # One less would not be enough.
            if load < enough + self._least - _ROUNDING:
                break
            group = [self._tenants[name] for name in self._loads[load] if name not in passed]
            if group:
                found += group
                break
        loads = {t.name: (len(t.running) - given.get(t.name, 0)) / t.weight for t in found}
        able = [t for t in found if loads[t.name] - 1 / t.weight >= enough - _ROUNDING]
        if not able:
            return None
        # Of equal ones the one that was served more.
        return max(able, key=lambda t: (loads[t.name], self.charge(t.name), t.name)).name

    @property
    def uneven(self) -> bool:
        """Whether a tenant may have to give a slot to another one: cheap, and never False where
        `yielding` finds somebody."""
        loads = self._loads
        return len(loads) > 1 and max(loads) - min(loads) >= 2 * self._least - _ROUNDING

    def heaviest(self, given: dict[str, int], without: set[str]) -> str | None:
        """The tenant that runs the most sequences for its weight; None if none runs. given: how
        many sequences tenants have given up already. without: tenants that are passed over."""
        passed = {*given, *without}
        found = [self._tenants[name] for name in given if name not in without]
        for load in sorted(self._loads, reverse=True):
            group = [self._tenants[name] for name in self._loads[load] if name not in passed]
            if group:
                found += group
                break
        loads = {t.name: (len(t.running) - given.get(t.name, 0)) / t.weight for t in found}
        able = [t for t in found if loads[t.name] > 0]
        # Of equal ones the one that was served more.
        most = max(able, key=lambda t: (loads[t.name], self.charge(t.name), t.name), default=None)
        return None if most is None else most.name

    def _load(self, tenant: Tenant) -> None:
        """It runs another number of sequences, or has another weight."""
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
