"""The calls in an engine and where they stand: Algorithm 1 as events. Pure: instants are handed in.

The scheduler tells what happens (arrive, start, serve, preempt, leave); the ledger asks the order
and keeps everybody's standing. Work is done at events, not at every step for every call: a call's
demotion is looked at when it was served, its promotion when the wait that it takes is over (a heap
of instants), so that a step with nothing new costs nothing here.
"""

from __future__ import annotations

import heapq
import math
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Final

from weft_engine.account import CallAccount
from weft_engine.fairness import TenantShares
from weft_engine.orders import CallView, Order, Standing
from weft_engine.orders.vtc import TokenCounters
from weft_engine.wire import CallContext

Rank = tuple[int, float, int]

# Finished calls whose totals are kept, in case another sequence of the same call still comes
# (several prompts in one request).
_REMEMBERED_CALLS: Final = 1024
_FIRST: Final[Rank] = (-1, 0.0, 0)
# The place of calls that are held back, behind every queue.
HELD: Final = 2**31


class Ledger:
    """Accounts of all calls in one engine under one order.

    moved: sequences whose rank or place has changed; whoever sorts by ranks clears it.
    promotions, demotions: how many there were. shares: what each tenant was given, and whose turn
    it is.
    """

    def __init__(self, order: Order) -> None:
        self.order = order
        self.promotions = 0
        self.demotions = 0
        self.moved: set[str] = set()
        self.shares = TenantShares()
        self._calls: dict[str, CallAccount] = {}
        self._finished: OrderedDict[str, CallAccount] = OrderedDict()
        self._of: dict[str, CallAccount] = {}
        self._entries = 0
        self._starving: list[tuple[float, int, CallAccount]] = []
        self._counters = TokenCounters()
        # Programs served since ranks were last refreshed, under a moving order.
        self._served: set[str] = set()

    # -- events ------------------------------------------------------------------------------

    def arrive(self, sequence: str, context: CallContext, now: float) -> CallAccount:
        """A sequence came into the queue; its call's account, new or known."""
        self.shares.arrive(sequence, context.tenant, context.weight)
        account = self._calls.get(context.call) or self._finished.pop(context.call, None)
        if account is None:
            if self.order.counts_tokens:
                # A tenant's programs are compared with each other alone.
                calls = (a.context for a in self._calls.values())
                active = {c.program for c in calls if c.tenant == context.tenant}
                self._counters.arrive(context.program, active)
            account = CallAccount(context=context, policy=self.order.name)
            account.hints.extend(f"{name}=ignored: malformed" for name in context.ignored)
            account.enqueue(sequence, now)
            self._stand(account, self.order.enter(self._view(account, now)), now)
        else:
            account.enqueue(sequence, now)
            self._watch(account, now)
            self.moved.add(sequence)
        self._calls[context.call] = account
        self._of[sequence] = account
        return account

    def start(self, sequence: str, now: float) -> None:
        """A waiting sequence was scheduled."""
        account = self._of.get(sequence)
        if account is not None:
            self.shares.start(sequence)
            account.start(sequence, now)
            self.moved.add(sequence)
            # Siblings that still wait belong to a call that runs now.
            if self.order.sees_cache:
                self._rank(account, now)

    def preempt(self, sequence: str, now: float) -> None:
        """A running sequence went back to the queue."""
        account = self._of.get(sequence)
        if account is not None:
            account.preemptions += 1
            self.shares.stop(sequence)
            account.enqueue(sequence, now)
            self._watch(account, now)
            # It was put before its siblings, of equal rank, and stays there.
            self.moved |= account.waiting

    def serve(
        self,
        tokens: Mapping[str, int],
        duration_s: float,
        now: float,
        prefill: Mapping[str, int] | None = None,
    ) -> None:
        """A step took this long; tokens: how many it computed for each sequence. prefill: those of
        prompts, None where that is not known."""
        self.shares.advance(duration_s, prefill)
        served: dict[int, CallAccount] = {}
        for sequence in tokens:
            account = self._of.get(sequence)
            if account is not None:
                served[id(account)] = account
        for account in served.values():
            account.serve(duration_s)
            if account.quantum_left_s <= 0:
                self._review(account, now)
        if self.order.moving:
            self._served.update(account.context.program for account in served.values())
        if self.order.counts_tokens:
            for sequence, count in tokens.items():
                account = self._of.get(sequence)
                if account is not None:
                    # A step of one token writes it; a longer one reads a prompt.
                    read, written = (count, 0) if count > 1 else (0, 1)
                    self._counters.serve(account.context.program, read, written)

    def leave(self, sequence: str, now: float) -> CallAccount | None:
        """A sequence finished or was aborted. The account if it was the call's last one."""
        account = self._of.pop(sequence, None)
        if account is None:
            return None
        self.shares.leave(sequence)
        account.leave(sequence, now)
        if account.alive:
            # Siblings of the last one that ran wait from now on.
            self._watch(account, now)
            if self.order.sees_cache:
                self._rank(account, now)
            return None
        del self._calls[account.context.call]
        self._finished[account.context.call] = account
        while len(self._finished) > _REMEMBERED_CALLS:
            self._finished.popitem(last=False)
        return account

    def promote(self, now: float) -> None:
        """Promote whoever has waited long enough by now (lines 24 to 30)."""
        while self._starving and self._starving[0][0] <= now:
            _, _, account = heapq.heappop(self._starving)
            if account.waiting_since is not None and not self._review(account, now):
                self._watch(account, now)

    def switch(self, order: Order, now: float) -> None:
        """Go on under another order: everybody enters it anew."""
        self.order = order
        self._starving.clear()
        self._served.clear()
        for account in self._calls.values():
            account.policy = order.name
            self._stand(account, order.enter(self._view(account, now)), now)

    def refresh(self, now: float) -> None:
        """Ask a moving order for the ranks of calls whose programs were served."""
        if not self.order.moving:
            return
        for account in self._calls.values():
            if account.context.program in self._served:
                self._rank(account, now)
        self._served.clear()

    def look(self, sequence: str, cached: int, uncached: int, now: float) -> None:
        """A waiting sequence's context was looked up in the cache: so many tokens are there, so
        many would have to be computed."""
        account = self._of.get(sequence)
        if account is None:
            return
        account.context_cached, account.context_uncached = cached, uncached
        self._rank(account, now)

    def hold(self, sequence: str, held: bool) -> None:
        """Put a waiting sequence's call behind all others, or back into its place."""
        account = self._of.get(sequence)
        if account is None:
            return
        queue = 0 if self.order.ranks_across else account.queue
        place = HELD if held else queue
        if place != account.place:
            account.place = place
            self._move(account)

    def patience(self, sequence: str, keep_s: float, now: float) -> float:
        """Seconds for which the order lets a sequence's call be held back from now on."""
        account = self._of.get(sequence)
        return 0.0 if account is None else self.order.patience(self._view(account, now), keep_s)

    # -- questions ---------------------------------------------------------------------------

    def of(self, sequence: str) -> CallAccount | None:
        """The account of a sequence's call."""
        return self._of.get(sequence)

    def rank(self, sequence: str) -> Rank:
        """What to sort by, the best first; sequences that are unknown come before all."""
        account = self._of.get(sequence)
        if account is None:
            return _FIRST
        return (account.place, account.rank, account.order_in_queue)

    @property
    def starves_at(self) -> float:
        """The next instant at which a promotion may be due; infinite if none is in sight."""
        return self._starving[0][0] if self._starving else math.inf

    def waiting_by_queue(self) -> dict[int, int]:
        """Waiting sequences in each queue. May be asked from another thread."""
        found: dict[int, int] = {}
        for account in list(self._calls.values()):
            if account.waiting:
                found[account.queue] = found.get(account.queue, 0) + len(account.waiting)
        return dict(sorted(found.items()))

    def violations(self, alive: Iterable[str]) -> list[str]:
        """What is inconsistent, in words; empty if nothing is. alive: the engine's sequences."""
        found = self.shares.violations()
        known, real = set(self._of), set(alive)
        if known != real:
            found.append(f"sequences differ: {sorted(known ^ real)[:5]}")
        for call, account in self._calls.items():
            if not account.alive:
                found.append(f"call {call} has no sequence and is still here")
            if min(account.service_s, account.waiting_s) < 0:
                found.append(f"call {call} has a negative time")
        return found

    # -- standings ---------------------------------------------------------------------------

    def _view(self, account: CallAccount, now: float) -> CallView:
        return account.view(now, self._counters.of(account.context.program))

    def _review(self, account: CallAccount, now: float) -> bool:
        """Whether the order gave the call another standing."""
        # Twice at most: who is demoted may starve there at once.
        for changes in range(2):
            standing = self.order.review(self._view(account, now))
            if standing is None:
                return changes > 0
            if standing.promoted:
                account.settle_wait(now)
                self.promotions += 1
            elif standing.queue > account.queue:
                self.demotions += 1
            self._stand(account, standing, now)
        return True

    def _stand(self, account: CallAccount, standing: Standing, now: float) -> None:
        self._entries += 1
        view = self._view(account, now)
        account.stand(standing, self.order.turn(view, self._entries))
        account.place = 0 if self.order.ranks_across else standing.queue
        account.rank = self.order.rank(self._view(account, now))
        self._move(account)
        self._watch(account, now)

    def _rank(self, account: CallAccount, now: float) -> None:
        """Ask the order again; all of the call's sequences have the rank."""
        rank = self.order.rank(self._view(account, now))
        if rank != account.rank:
            account.rank = rank
            self._move(account)

    def _move(self, account: CallAccount) -> None:
        self.moved |= account.waiting
        self.moved |= account.running

    def _watch(self, account: CallAccount, now: float) -> None:
        """Remember when this wait would be long enough for a promotion."""
        if account.waiting_since is None:
            return
        wait = self.order.starves_in(self._view(account, now))
        if math.isfinite(wait):
            self._entries += 1
            # Later than now: a wait of no length promotes nobody.
            due = max(now + wait, math.nextafter(now, math.inf))
            heapq.heappush(self._starving, (due, self._entries, account))
