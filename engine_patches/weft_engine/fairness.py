"""Fair shares of an engine between tenants. Pure.

A tenant is charged one second of service for each second in which one of its sequences runs,
divided by its weight. Among tenants that contend, the one with the least charge is served next
(virtual-time fair queueing). Each running sequence counts as a provisional charge of one quantum,
so that several slots that are free at once are dealt out evenly, and a tenant with nothing running
goes before one that fills the engine.

The virtual time is the weighted mean of the charges of active tenants. A tenant that comes back is
lifted to it: an idle tenant saves up nothing. A tenant that was served more than the others keeps
its debt. A lone tenant is compared with no other, so its order does not depend on any of this.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Final

# Charges of idle tenants that are remembered.
_REMEMBERED: Final = 4096
_SMOOTHING: Final = 0.05
# Of loads that are equal but for their last digits.
_ROUNDING: Final = 1e-9
# Stale entries of the heap that are tolerated before it is built anew.
_STALE: Final = 64


@dataclass(slots=True)
class _Tenant:
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


class TenantShares:
    """Which of an engine's tenants is served next, and which one gives way.

    To be told of every sequence that arrives, starts, stops (is put back) and leaves, and of the
    duration of each step, seconds. Each event costs O(log tenants), a step O(1). quantum_s: the
    provisional charge of a running sequence; it follows the time that sequences run, by powers of
    two.
    """

    def __init__(self, quantum_s: float = 1.0) -> None:
        self.quantum_s = quantum_s
        self._run_s = quantum_s
        # Seconds that the engine was busy; a running sequence is charged by this clock.
        self._clock = 0.0
        self._tenants: dict[str, _Tenant] = {}
        self._idle: OrderedDict[str, float] = OrderedDict()
        self._of: dict[str, _Tenant] = {}
        self._begun: dict[str, float] = {}
        self._weights = 0.0
        # What a running sequence adds at least to its tenant's load.
        self._least = math.inf
        # The sum of weight times charge of active tenants, and the instant of its last change.
        self._charged = 0.0
        self._charged_at = 0.0
        self._virtual = 0.0
        # Active tenants by running sequences over weight.
        self._loads: dict[float, dict[str, None]] = {}
        # Keys never fall without a new entry, so that an entry is a lower bound.
        self._heap: list[tuple[float, str]] = []

    # -- events ------------------------------------------------------------------------------

    def arrive(self, sequence: str, tenant: str, weight: float) -> None:
        """A sequence of this tenant waits. weight: positive; the last word about a tenant counts
        for all of its sequences."""
        found = self._tenants.get(tenant)
        if found is None:
            charge = max(self._idle.pop(tenant, 0.0), self.virtual_time)
            found = self._tenants[tenant] = _Tenant(tenant, weight, charge, self._clock)
            self._load(found)
            self._settle_sum()
            self._weights += weight
            self._charged += weight * charge
        elif weight != found.weight:
            self._reweigh(found, weight)
        found.waiting.add(sequence)
        self._of[sequence] = found
        self._enter(found)

    def start(self, sequence: str) -> None:
        """A waiting sequence runs from now on."""
        tenant = self._of.get(sequence)
        if tenant is None or sequence in tenant.running:
            return
        self._settle(tenant)
        self._settle_sum()
        tenant.waiting.discard(sequence)
        tenant.running.add(sequence)
        self._load(tenant)
        self._begun[sequence] = self._clock

    def stop(self, sequence: str) -> None:
        """A running sequence was put back and waits again."""
        tenant = self._of.get(sequence)
        if tenant is not None:
            self._end_run(tenant, sequence)
            tenant.waiting.add(sequence)
            self._enter(tenant)

    def leave(self, sequence: str) -> None:
        """A sequence has finished or was aborted."""
        tenant = self._of.pop(sequence, None)
        if tenant is None:
            return
        self._end_run(tenant, sequence)
        tenant.waiting.discard(sequence)
        if tenant.waiting or tenant.running:
            self._enter(tenant)
            return
        # What is left of the others' mean is theirs.
        self._virtual = self.virtual_time
        del self._tenants[tenant.name]
        self._unload(tenant)
        self._weights -= tenant.weight
        self._charged -= tenant.weight * tenant.charge
        if not self._tenants:
            # No rounding is carried on.
            self._weights = self._charged = 0.0
            self._least = math.inf
            self._heap.clear()
        self._idle[tenant.name] = tenant.charge
        while len(self._idle) > _REMEMBERED:
            self._idle.popitem(last=False)

    def advance(self, duration_s: float) -> None:
        """A step took this long: all sequences that run are charged."""
        self._clock += duration_s

    # -- questions ---------------------------------------------------------------------------

    @property
    def contended(self) -> bool:
        """Whether several tenants have sequences in the engine."""
        return len(self._tenants) > 1

    @property
    def virtual_time(self) -> float:
        """What a tenant that comes now is charged at least: the mean charge, seconds of service
        for each unit of weight. Does not fall while the engine is idle."""
        if not self._tenants:
            return self._virtual
        running = len(self._begun) * (self._clock - self._charged_at)
        return (self._charged + running) / self._weights

    def tenant_of(self, sequence: str) -> str:
        """The tenant of a sequence that is in the engine; "" where it is unknown."""
        tenant = self._of.get(sequence)
        return "" if tenant is None else tenant.name

    def waiting_of(self, tenant: str) -> set[str]:
        """The tenant's waiting sequences; not to be changed."""
        found = self._tenants.get(tenant)
        return found.waiting if found else set()

    def running_of(self, tenant: str) -> set[str]:
        """The tenant's running sequences; not to be changed."""
        found = self._tenants.get(tenant)
        return found.running if found else set()

    def charge(self, tenant: str) -> float:
        """Seconds of service over weight that an active tenant was charged."""
        found = self._tenants[tenant]
        self._settle(found)
        return found.charge

    def next(self, taken: dict[str, int], without: set[str]) -> str | None:
        """The tenant whose waiting sequence is served next; None if there is none. taken: how many
        were chosen of each tenant, but do not run yet. without: tenants that are passed over."""
        aside: list[_Tenant] = []
        chosen = None
        while self._heap:
            key, name = self._heap[0]
            tenant = self._tenants.get(name)
            if tenant is None or tenant.entry != key:
                heappop(self._heap)
                continue
            heappop(self._heap)
            tenant.entry = None
            more = taken.get(name, 0)
            if len(tenant.waiting) <= more or name in without:
                if tenant.waiting:
                    aside.append(tenant)
                continue
            actual = self._key(tenant, more)
            if actual > key:
                self._push(tenant, actual)
                continue
            aside.append(tenant)
            chosen = name
            break
        for tenant in aside:
            # Those that were taken may not come to run: the entry must not be above the key then.
            self._push(tenant, self._key(tenant, taken.get(tenant.name, 0)))
        return chosen

    def restore(self, taken: dict[str, int]) -> None:
        """A choice is complete: those that were taken count by what they really run again."""
        for name in taken:
            tenant = self._tenants.get(name)
            if tenant is not None:
                self._enter(tenant)

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

    def violations(self) -> list[str]:
        """What is inconsistent, in words; empty if nothing is."""
        found = []
        for name, tenant in self._tenants.items():
            if not (tenant.waiting or tenant.running):
                found.append(f"tenant {name!r} has nothing in the engine and is still active")
            if tenant.waiting and tenant.entry is None:
                found.append(f"tenant {name!r} waits and has no turn")
        running = {s for tenant in self._tenants.values() for s in tenant.running}
        if running != set(self._begun):
            found.append("running sequences of tenants differ")
        weights = sum(tenant.weight for tenant in self._tenants.values())
        if abs(weights - self._weights) > 1e-6 * max(1.0, weights):
            found.append("weights of tenants are miscounted")
        return found

    # -- inside ------------------------------------------------------------------------------

    def _settle(self, tenant: _Tenant) -> None:
        passed = self._clock - tenant.since
        if passed:
            tenant.charge += len(tenant.running) * passed / tenant.weight
            tenant.since = self._clock

    def _settle_sum(self) -> None:
        self._charged += len(self._begun) * (self._clock - self._charged_at)
        self._charged_at = self._clock

    def _end_run(self, tenant: _Tenant, sequence: str) -> None:
        self._settle(tenant)
        self._settle_sum()
        begun = self._begun.pop(sequence, None)
        if begun is not None:
            tenant.running.discard(sequence)
            self._load(tenant)
            self._run_s += _SMOOTHING * (self._clock - begun - self._run_s)
            self._adapt()

    def _adapt(self) -> None:
        if self._run_s > 2 * self.quantum_s:
            self.quantum_s *= 2
        elif 0 < self._run_s < self.quantum_s / 2:
            self.quantum_s /= 2
        else:
            return
        self._rebuild()

    def _reweigh(self, tenant: _Tenant, weight: float) -> None:
        self._settle(tenant)
        self._settle_sum()
        self._weights += weight - tenant.weight
        self._charged += (weight - tenant.weight) * tenant.charge
        tenant.weight = weight
        self._load(tenant)

    def _load(self, tenant: _Tenant) -> None:
        """It runs another number of sequences, or has another weight."""
        self._least = min(self._least, 1 / tenant.weight)
        load = len(tenant.running) / tenant.weight
        if load != tenant.load:
            self._unload(tenant)
            tenant.load = load
            self._loads.setdefault(load, {})[tenant.name] = None

    def _unload(self, tenant: _Tenant) -> None:
        names = self._loads.get(tenant.load)
        if names is not None:
            names.pop(tenant.name, None)
            if not names:
                del self._loads[tenant.load]

    def _key(self, tenant: _Tenant, more: int = 0) -> float:
        self._settle(tenant)
        running = len(tenant.running) + more + 1
        return tenant.charge + self.quantum_s * running / tenant.weight

    def _enter(self, tenant: _Tenant) -> None:
        """Its key may have fallen."""
        if not tenant.waiting:
            return
        key = self._key(tenant)
        if tenant.entry is None or key < tenant.entry:
            self._push(tenant, key)

    def _push(self, tenant: _Tenant, key: float) -> None:
        tenant.entry = key
        heappush(self._heap, (key, tenant.name))
        if len(self._heap) > 2 * len(self._tenants) + _STALE:
            self._rebuild()

    def _rebuild(self) -> None:
        self._heap.clear()
        for tenant in self._tenants.values():
            tenant.entry = self._key(tenant) if tenant.waiting else None
            if tenant.entry is not None:
                self._heap.append((tenant.entry, tenant.name))
        heapify(self._heap)
