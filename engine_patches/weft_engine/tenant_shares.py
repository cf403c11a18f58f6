"""Fair shares of an engine between tenants. Pure.

Each step charges its tenants, for each running sequence, with the step's duration without prefill,
and for their prompt tokens with the time that prefill adds; both are divided by the tenant's
weight. Among tenants that contend, the one with the least charge is served next (virtual-time fair
queueing). Each running sequence counts as a provisional charge of one quantum. So slots that become
free together are distributed evenly, and a tenant without running sequences precedes one that fills
the engine.

The virtual time is the weighted mean of the charges of active tenants. A returning tenant's charge
is raised to it, so idle tenants accumulate no credit. The credit of a tenant whose sequences never
wait is limited to the service of the longest recent sequence, as the length of a packet limits the
lag in fair queueing. A tenant that received more service than others keeps its debt. With a single
tenant, none of this affects the order.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from heapq import heapify, heappop, heappush
from math import inf
from typing import Final, NamedTuple

from weft_engine.step_cost import StepCost
from weft_engine.tenant_loads import Tenant, TenantLoads

# The number of idle tenants whose charges are remembered.
_REMEMBERED: Final = 4096
_SMOOTHING: Final = 0.05
# Tolerated stale heap entries before a rebuild.
_STALE: Final = 64


class _Idle(NamedTuple):
    """A tenant without sequences. left: busy seconds of the engine when its last sequence left."""

    charge: float
    weight: float
    left: float


class TenantShares(TenantLoads):
    """Selects the tenant to serve next and the tenant to preempt.

    The caller reports every sequence that arrives, starts, stops (is preempted) and leaves, and the
    duration of each step in seconds. An event costs O(log tenants), and a step costs O(prompts in
    prefill). quantum_s: the provisional charge of a running sequence; it follows the charges of
    sequences that ran, in powers of two. cost: the costs of steps, learned from their durations.
    """

    def __init__(self, quantum_s: float = 1.0) -> None:
        super().__init__()
        self.quantum_s = quantum_s
        self.cost = StepCost()
        # The mean and the decaying maximum of the service of one sequence.
        self._run_s = self._longest_s = quantum_s
        # Busy seconds of the engine, and those of them without prefill. The second clock charges
        # running sequences.
        self._busy = 0.0
        self._clock = 0.0
        # The tenant that left last is at the end.
        self._idle: OrderedDict[str, _Idle] = OrderedDict()
        self._of: dict[str, Tenant] = {}
        self._begun: dict[str, float] = {}
        self._weights = 0.0
        # The sum of weight times charge over active tenants, and the clock at its last change.
        self._charged = 0.0
        self._charged_at = 0.0
        self._virtual = 0.0
        # A key never falls without a new entry, so an entry is a lower bound.
        self._heap: list[tuple[float, str]] = []

    # -- events ------------------------------------------------------------------------------

    def arrive(self, sequence: str, tenant: str, weight: float) -> None:
        """A sequence of a tenant starts to wait. weight: positive; the latest value applies to all
        sequences of the tenant."""
        found = self._tenants.get(tenant)
        if found is None:
            idle = self._idle.pop(tenant, None)
            charge = max(idle.charge if idle else 0.0, self.virtual_time)
            found = self._tenants[tenant] = Tenant(tenant, weight, charge, self._clock)
            self._load(found)
            self._settle_sum()
            self._weights += weight
            self._charged += weight * charge
        elif weight != found.weight:
            self._reweigh(found, weight)
        if not found.waiting:
            self._limit_credit(found)
        found.waiting.add(sequence)
        self._of[sequence] = found
        self._enter(found)

    def start(self, sequence: str) -> None:
        """A waiting sequence starts to run."""
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
        """A running sequence was preempted and waits again."""
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
        # The mean of the remaining tenants stays the same.
        self._virtual = self.virtual_time
        del self._tenants[tenant.name]
        self._unload(tenant)
        self._weights -= tenant.weight
        self._charged -= tenant.weight * tenant.charge
        if not self._tenants:
            # Start anew, without accumulated rounding errors.
            self._weights = self._charged = 0.0
            self._least = inf
            self._heap.clear()
        self._idle[tenant.name] = _Idle(tenant.charge, tenant.weight, self._busy)
        while len(self._idle) > _REMEMBERED:
            self._idle.popitem(last=False)

    def advance(self, duration_s: float, prefill: Mapping[str, int] | None = None) -> None:
        """A step took this long: charge all running sequences. prefill: its prompt tokens by
        sequence; None if unknown."""
        self._busy += duration_s
        if prefill is None:
            self._clock += duration_s
            return
        tokens = sum(prefill.values()) if prefill else 0
        self.cost.note(duration_s, tokens)
        if tokens:
            duration_s -= self._charge_prefill(prefill, tokens, duration_s)
        self._clock += duration_s

    def _charge_prefill(self, prefill: Mapping[str, int], tokens: int, duration_s: float) -> float:
        """Charge the prefill part of a step to the sequences that caused it. Returns its seconds; 0
        if none of them still runs."""
        known = {name: count for name, count in prefill.items() if name in self._begun}
        if not known:
            return 0.0
        prefill_s = duration_s * self.cost.prefill_share(tokens)
        # Prefill delayed all running sequences.
        charge_s = prefill_s * len(self._begun)
        self._settle_sum()
        self._charged += charge_s
        of_known = sum(known.values())
        for name, count in known.items():
            tenant = self._of[name]
            part = charge_s * count / of_known
            tenant.charge += part / tenant.weight
            # Counts as longer run time, since the quantum follows charges.
            self._begun[name] -= part
        return prefill_s

    # -- questions ---------------------------------------------------------------------------

    @property
    def contended(self) -> bool:
        """Whether several tenants have sequences in the engine."""
        return len(self._tenants) > 1

    @property
    def virtual_time(self) -> float:
        """The minimum charge of a tenant that arrives now: the mean charge, in seconds of service
        per weight. It does not fall while the engine is idle."""
        if not self._tenants:
            return self._virtual
        running = len(self._begun) * (self._clock - self._charged_at)
        return (self._charged + running) / self._weights

    @property
    def weights(self) -> float:
        """The sum of the weights of the active tenants."""
        return self._weights

    def left_within(self, seconds: float) -> bool:
        """Whether a tenant's last sequence left the engine within this many busy seconds."""
        last = next(reversed(self._idle.values()), None)
        return last is not None and self._busy - last.left < seconds

    def rivals(self, within_s: float) -> dict[str, float]:
        """Return the weights of tenants with running sequences, and of those whose last sequence
        left within this many busy seconds of the engine."""
        found = self.weights_of_running()
        for name in reversed(self._idle):
            idle = self._idle[name]
            if self._busy - idle.left >= within_s:
                break
            found[name] = idle.weight
        return found

    def weight(self, tenant: str) -> float:
        """Return the weight of an active tenant; 1 if it is unknown."""
        found = self._tenants.get(tenant)
        return 1.0 if found is None else found.weight

    def tenant_of(self, sequence: str) -> str:
        """Return the tenant of a sequence in the engine; "" if it is unknown."""
        tenant = self._of.get(sequence)
        return "" if tenant is None else tenant.name

    def waiting_of(self, tenant: str) -> set[str]:
        """Return the tenant's waiting sequences. Read-only."""
        found = self._tenants.get(tenant)
        return found.waiting if found else set()

    def running_of(self, tenant: str) -> set[str]:
        """Return the tenant's running sequences. Read-only."""
        found = self._tenants.get(tenant)
        return found.running if found else set()

    def charge(self, tenant: str) -> float:
        """Return an active tenant's seconds of service per weight."""
        found = self._tenants[tenant]
        self._settle(found)
        return found.charge

    def next(self, taken: dict[str, int], without: set[str]) -> str | None:
        """Return the tenant whose waiting sequence is served next; None without such a tenant.
        taken: the sequences chosen of each tenant that do not run yet. without: tenants to skip."""
        aside: list[Tenant] = []
        chosen = None
        while (key := self._first_waiting()) is not None:
            _, name = heappop(self._heap)
            tenant = self._tenants[name]
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
            # Chosen sequences may fail to start, so the entry must not exceed the key without them.
            self._push(tenant, self._key(tenant, taken.get(tenant.name, 0)))
        return chosen

    def restore(self, taken: dict[str, int]) -> None:
        """End a choice: the tenants in `taken` count with their actual running sequences again."""
        for name in taken:
            tenant = self._tenants.get(name)
            if tenant is not None:
                self._enter(tenant)

    def violations(self) -> list[str]:
        """Return inconsistencies in words."""
        found = []
        for name, tenant in self._tenants.items():
            if not (tenant.waiting or tenant.running):
                found.append(f"tenant {name!r} is active without sequences")
            if tenant.waiting and tenant.entry is None:
                found.append(f"tenant {name!r} waits without a heap entry")
        running = {s for tenant in self._tenants.values() for s in tenant.running}
        if running != set(self._begun):
            found.append("running sequences of tenants differ")
        weights = sum(tenant.weight for tenant in self._tenants.values())
        if abs(weights - self._weights) > 1e-6 * max(1.0, weights):
            found.append("weights of tenants are miscounted")
        return found

    # -- inside ------------------------------------------------------------------------------

    def _settle(self, tenant: Tenant) -> None:
        passed = self._clock - tenant.since
        if passed:
            tenant.charge += len(tenant.running) * passed / tenant.weight
            tenant.since = self._clock

    def _settle_sum(self) -> None:
        self._charged += len(self._begun) * (self._clock - self._charged_at)
        self._charged_at = self._clock

    def _limit_credit(self, tenant: Tenant) -> None:
        """Raise the charge of a tenant without waiting sequences to that of the next tenant, less
        the service of one long sequence."""
        first = self._first_waiting()
        if first is None:
            return
        lacking = first - self._longest_s / tenant.weight - self._key(tenant)
        if lacking > 0:
            self._settle_sum()
            self._charged += tenant.weight * lacking
            tenant.charge += lacking

    def _first_waiting(self) -> float | None:
        """Return a lower bound of the least key of waiting tenants; None if no tenant waits."""
        while self._heap:
            key, name = self._heap[0]
            tenant = self._tenants.get(name)
            if tenant is not None and tenant.entry == key:
                return key
            heappop(self._heap)
        return None

    def _end_run(self, tenant: Tenant, sequence: str) -> None:
        self._settle(tenant)
        self._settle_sum()
        begun = self._begun.pop(sequence, None)
        if begun is not None:
            tenant.running.discard(sequence)
            self._load(tenant)
            self._longest_s = max(self._clock - begun, self._longest_s * (1 - _SMOOTHING))
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

    def _reweigh(self, tenant: Tenant, weight: float) -> None:
        self._settle(tenant)
        self._settle_sum()
        self._weights += weight - tenant.weight
        self._charged += (weight - tenant.weight) * tenant.charge
        tenant.weight = weight
        self._load(tenant)

    def _key(self, tenant: Tenant, more: int = 0) -> float:
        self._settle(tenant)
        running = len(tenant.running) + more + 1
        return tenant.charge + self.quantum_s * running / tenant.weight

    def _enter(self, tenant: Tenant) -> None:
        """Its key may have fallen."""
        if not tenant.waiting:
            return
        key = self._key(tenant)
        if tenant.entry is None or key < tenant.entry:
            self._push(tenant, key)

    def _push(self, tenant: Tenant, key: float) -> None:
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
