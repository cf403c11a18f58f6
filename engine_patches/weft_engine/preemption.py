"""Chooses the running requests to preempt from an engine's queues.

With one tenant, a waiting request preempts a running one of worse rank in the engine's order. While
tenants contend, this applies inside each tenant. Between tenants, only the number of running
sequences per weight counts, so attributes of calls have no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice, takewhile
from typing import Any, Final

from weft_engine.call_state import Rank
from weft_engine.call_table import FIRST, CallTable
from weft_engine.preemption_rules import Candidate, Claim, meet_claims
from weft_engine.tenant_queues import TenantQueues

# Waiting requests that one decision examines at most.
_CLAIMS: Final = 256
# Inside a tenant: preemptions per second, and how many are possible at once. Each one costs the
# scheduler another admission.
_PER_SECOND: Final = 4.0
_AT_ONCE: Final = 8
# With several tenants: claims per decision, and running requests of one tenant per decision.
_FAIR_CLAIMS: Final = 8
_FAIR_VICTIMS: Final = 16


class Preemption:
    """Preemption decisions of one engine. hooks: its scheduler's handles (SchedulerHooks).

    `decide` and `decide_fairly` return at once unless `touch` was called or ranks have changed
    since the last decision without a result. Call `touch` when blocks or slots may have become
    free.
    """

    def __init__(
        self, hooks: Any, call_table: CallTable, tenant_queues: TenantQueues, max_displacements: int
    ) -> None:
        self._hooks = hooks
        self._calls = call_table
        self._tenant_queues = tenant_queues
        self._most = max_displacements
        self._changed = True
        self._allowed = float(_AT_ONCE)
        self._counted_at = 0.0

    def touch(self) -> None:
        """Blocks or slots may have become free."""
        self._changed = True

    def decide(self, now: float) -> list[str]:
        """Return the sequences to preempt, with one tenant. now: seconds on the engine's clock."""
        if not self._changed or not self._may_preempt(now):
            return []
        ready = self._hooks.readiness()
        better, worse = self._at_odds(ready)
        victims: list[str] = []
        if worse:
            slots = self._hooks.free_slots()
            if len(better) > slots or self._hooks.waits_for_blocks():
                spare, most = self._hooks.spare_blocks(), int(self._allowed)
                for _, given in self._met(better, worse, slots, spare, most):
                    victims += given
                # A claim is met completely or not at all, so the last one may exceed the limit.
                self._allowed -= len(victims)
        # A refused request may become ready without any event here.
        self._changed = bool(victims) or ready.refused > 0
        return victims

    def decide_fairly(self, now: float) -> tuple[list[str], list[str]]:
        """While tenants contend: return the sequences to preempt, and the waiting ones that take
        their places, in the order of admission. now: seconds on the engine's clock."""
        if not self._changed:
            return [], []
        inside = self._calls.order.preempts and self._may_preempt(now)
        ready = self._hooks.readiness()
        slots, spare = self._hooks.free_slots(), self._hooks.spare_blocks()
        plan = _Plan(self, ready, slots, spare)
        if slots < 1:
            if self._calls.shares.uneven:
                plan.between(self._tenant_queues.next(_FAIR_CLAIMS, ready))
            dirty = self._tenant_queues.dirty
            while inside and dirty and self._allowed >= 1:
                tenant = next(iter(dirty))
                del dirty[tenant]
                plan.inside(tenant)
                if self._allowed < 1:
                    # It may have further claims: the other tenants come first.
                    dirty[tenant] = None
        else:
            first = self._tenant_queues.next(1, ready)
            short = bool(first) and not plan.fits(first[0]) and not plan.between(first)
            if short and inside:
                plan.inside(self._calls.shares.tenant_of(first[0]), first)
        waits = self._calls.order.preempts and self._allowed < 1
        self._changed = bool(plan.victims) or ready.refused > 0 or waits
        return plan.victims, plan.coming

    def preempted_for(self, blocks: int) -> list[Any]:
        """While tenants contend: return running requests to preempt, in order, until this many
        blocks are free. Each is the worst request of the tenant with the most running sequences per
        weight after the preemptions before it."""
        given: dict[str, int] = {}
        without: set[str] = set()
        queues: dict[str, Iterator[Any]] = {}
        found: list[Any] = []
        while blocks > 0:
            tenant = self._calls.shares.heaviest(given, without)
            if tenant is None:
                break
            queue = queues.get(tenant)
            if queue is None:
                queue = queues[tenant] = self._giving(tenant)
            request = next(queue, None)
            if request is None:
                without.add(tenant)
                continue
            found.append(request)
            given[tenant] = given.get(tenant, 0) + 1
            blocks -= self._hooks.blocks_held_alone(request)
        return found

    def _giving(self, tenant: str, limit: bool = False) -> Iterator[Any]:
        """Iterate over a tenant's requests that can be preempted, worst first. limit: skip those
        that were preempted too often."""
        rank, requests = self._calls.rank, self._hooks.requests
        names = self._calls.shares.running_of(tenant)
        for name in sorted(names, key=lambda n: (rank(n), n), reverse=True):
            request = requests[name]
            if not self._hooks.can_be_preempted(request):
                continue
            if not limit or self._displaced(request) < self._most:
                yield request

    # -- one tenant --------------------------------------------------------------------------

    def _may_preempt(self, now: float) -> bool:
        """Whether the limit per second leaves room for a preemption."""
        passed, self._counted_at = now - self._counted_at, now
        self._allowed = min(_AT_ONCE, self._allowed + _PER_SECOND * max(0.0, passed))
        return self._allowed >= 1

    def _at_odds(self, ready: Callable[[str], bool]) -> tuple[list[Any], list[Any]]:
        """Return waiting requests that may preempt, best first, and running ones that may be
        preempted for them, worst first."""
        hooks = self._hooks
        # Both queues are sorted. If the best waiting request does not rank before the worst running
        # one, no preemption is possible. Most steps pay only for this check.
        worst = self._rank(hooks.running[-1])[0]
        first = next(self._claiming(ready), None)
        if first is None or not self._rank(first)[0] < worst:
            return [], []
        best = self._rank(first)[0]
        worse = takewhile(lambda r: best < self._rank(r)[0], reversed(hooks.running))
        candidates = list(filter(self._may_give_way, worse))
        # At most this many could be admitted in total.
        better = islice(self._claiming(ready), hooks.free_slots() + len(candidates))
        return list(takewhile(lambda r: self._rank(r)[0] < worst, better)), candidates

    def _claiming(self, ready: Callable[[str], bool]) -> Iterator[Any]:
        """Iterate in queue order over waiting requests that vLLM would admit now and that may
        preempt."""
        waiting: Iterator[Any] = islice(self._hooks.waiting_requests(), _CLAIMS)
        if not self._calls.order.preempts:
            waiting = takewhile(lambda r: self._rank(r)[0] == FIRST, waiting)
        return (request for request in waiting if ready(request.request_id))

    # -- shared ------------------------------------------------------------------------------

    def _met(
        self, better: list[Any], worse: list[Any], slots: int, spare: int, most: int | None = None
    ) -> list[tuple[str, list[str]]]:
        """Return the met claims with their victims; [] if no claim has a victim. A claim's blocks
        first get a cheap lower bound. They are counted only if the claim would be met with the
        bound. most: as for `meet_claims`."""
        held = {request.request_id: request for request in worse}
        candidates = [self._candidate(request) for request in worse]

        def blocks_of(candidate: Candidate) -> int:
            return int(self._hooks.blocks_held_alone(held[candidate.sequence]))

        def met(
            requests: Iterable[Any], blocks: Callable[[Any, int], int]
        ) -> list[tuple[str, list[str]]]:
            return meet_claims(
                (Claim(r.request_id, self._rank(r), blocks(r, spare)) for r in requests),
                candidates,
                free_slots=slots,
                free_blocks=spare,
                max_displacements=self._most,
                most=most,
                blocks_of=blocks_of,
            )

        likely = dict(met(better, self._hooks.blocks_at_least))
        if not any(likely.values()):
            return []
        return met((r for r in better if r.request_id in likely), self._hooks.blocks_needed)

    def _may_give_way(self, request: Any) -> bool:
        return self._displaced(request) < self._most and self._hooks.can_be_preempted(request)

    def _displaced(self, request: Any) -> int:
        call = self._calls.of(request.request_id)
        return 0 if call is None else call.displaced

    def _rank(self, request: Any) -> Rank:
        return self._calls.rank(request.request_id)

    def _candidate(self, request: Any) -> Candidate:
        computed = int(request.num_computed_tokens)
        hooks = self._hooks
        return Candidate(
            sequence=request.request_id,
            rank=self._rank(request),
            # Full blocks stay in the prefix cache for some time; the content of the last one is
            # lost.
            waste=computed % hooks.block_size if hooks.prefix_cached() else computed,
            preemptions=self._displaced(request),
        )


class _Plan:
    """One decision between and inside tenants while it is built."""

    def __init__(self, owner: Preemption, ready: Any, slots: int, spare: int) -> None:
        self.victims: list[str] = []
        self.coming: list[str] = []
        self._owner = owner
        self._hooks, self._calls = owner._hooks, owner._calls
        self._ready = ready
        self._slots, self._spare = slots, spare
        self._given: dict[str, int] = {}
        self._taken: dict[str, int] = {}
        # Tenants without further requests to preempt.
        self._without: set[str] = set()

    def fits(self, name: str) -> bool:
        """Whether a waiting sequence fits into the spare blocks."""
        return self._at_least(name) <= self._spare and self._needed(name) <= self._spare

    def between(self, claims: list[str]) -> bool:
        """Take slots and blocks for these claims from tenants with more running sequences per
        weight. A claim that cannot be met preempts no request. Returns whether a claim was met."""
        shares, met = self._calls.shares, False
        for name in claims:
            tenant = shares.tenant_of(name)
            given = dict(self._given)
            chosen: list[str] = []
            slots, spare, blocks = self._slots, self._spare, self._at_least(name)
            exact = False
            while slots < 1 or spare < blocks or not exact:
                if slots >= 1 and spare >= blocks:
                    # The lower bound fits, so count the blocks.
                    exact, blocks = True, self._needed(name)
                    continue
                giver = shares.yielding(tenant, given, self._taken.get(tenant, 0), self._without)
                if giver is None:
                    break
                victim = self._victim(giver, chosen)
                if victim is None:
                    self._without.add(giver)
                    continue
                chosen.append(victim.request_id)
                given[giver] = given.get(giver, 0) + 1
                slots += 1
                spare += self._hooks.blocks_held_alone(victim)
            if slots < 1 or spare < blocks or not chosen:
                continue
            met = True
            self._given = given
            self._taken[tenant] = self._taken.get(tenant, 0) + 1
            self._slots, self._spare = slots - 1, spare - blocks
            self.victims += chosen
            self.coming.append(name)
        return met

    def inside(self, tenant: str, claims: list[str] | None = None) -> None:
        """Inside a tenant, let waiting sequences preempt running ones of worse rank, as if the
        tenant were alone. claims: the only sequences considered; None: the tenant's best ones."""
        rank = self._calls.rank
        running = self._calls.shares.running_of(tenant)
        best = next(self._owner._tenant_queues.of(tenant), None)
        # For most decisions, these two comparisons suffice.
        if best is None or not running:
            return
        if rank(best)[0] >= max(map(rank, running))[0]:
            return
        taken = set(self.victims)
        giving = (r for r in self._owner._giving(tenant, limit=True) if r.request_id not in taken)
        worse = list(islice(giving, _FAIR_VICTIMS))
        if not worse:
            return
        worst = rank(worse[0].request_id)
        if claims is None:
            claims = list(islice(self._owner._tenant_queues.of(tenant), _FAIR_CLAIMS))
        better = []
        for name in claims:
            if name in self.coming:
                continue
            if rank(name)[0] >= worst[0]:
                break
            if self._ready(name):
                better.append(self._hooks.requests[name])
        most = int(self._owner._allowed)
        for name, given in self._owner._met(better, worse, self._slots, self._spare, most):
            if given:
                self._owner._allowed -= len(given)
                self.victims += given
                self.coming.append(name)
                freed = (self._hooks.blocks_held_alone(self._hooks.requests[v]) for v in given)
                self._spare += sum(freed) - self._needed(name)

    def _victim(self, tenant: str, chosen: list[str]) -> Any:
        """Return the tenant's next victim. Requests that were preempted often come last, but a
        tenant above its share always yields one."""
        passed = {*self.victims, *chosen}
        able = [r for r in self._owner._giving(tenant) if r.request_id not in passed]
        displaced, most = self._owner._displaced, self._owner._most
        return min(able, key=lambda r: max(0, displaced(r) + 1 - most), default=None)

    def _at_least(self, name: str) -> int:
        return int(self._hooks.blocks_at_least(self._hooks.requests[name], self._spare))

    def _needed(self, name: str) -> int:
        return int(self._hooks.blocks_needed(self._hooks.requests[name], self._spare))
