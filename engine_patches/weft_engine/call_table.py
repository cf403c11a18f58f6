"""The calls in an engine and their queues: Algorithm 1 as events. Pure: callers pass the time.

The scheduler reports events (arrive, start, serve, preempt, leave). The table asks the order and
keeps the queue of every call. A demotion is checked when the call's quantum is used up, a promotion
when the wait that it needs is over (heaps of instants), so a step without events costs almost
nothing.
"""

from __future__ import annotations

import heapq
import math
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Final

from weft_engine.call_state import CallState, Rank, ServiceClock
from weft_engine.call_view import QueueState
from weft_engine.orders import Order
from weft_engine.reorder import ReorderRule
from weft_engine.tenant_shares import TenantShares
from weft_engine.wire import CallContext

# Finished calls whose totals are kept: another sequence of the same call may still arrive (several
# prompts in one request).
_REMEMBERED_CALLS: Final = 1024
_UNKNOWN: Final[Rank] = (-1, 0.0, 0)
# The place of deferred calls, behind every queue and level.
DEFERRED: Final = 2**31
# The place of calls that come next, and that may preempt under any order.
FIRST: Final = -DEFERRED


class CallTable:
    """All calls in one engine, under one order.

    moved: sequences whose rank or queue has changed; the code that sorts the queues clears it.
    promotions, demotions: counts. shares: the fair shares of the tenants. rule: of the order, None
    if it has none.
    """

    def __init__(self, order: Order) -> None:
        self.order = order
        self.rule: ReorderRule | None = order.rule(self) if order.rule else None
        self.promotions = 0
        self.demotions = 0
        self.moved: set[str] = set()
        self.shares = TenantShares()
        self._calls: dict[str, CallState] = {}
        self._finished: OrderedDict[str, CallState] = OrderedDict()
        self._of: dict[str, CallState] = {}
        # Waiting sequences that are deferred. Other sequences of their calls may not be.
        self._held: set[str] = set()
        self._entries = 0
        self._step = 0
        self._clock = ServiceClock()
        # The calls of running sequences.
        self._running: dict[str, CallState] = {}
        self._starving: list[tuple[float, int, CallState]] = []
        # Running calls with a finite quantum, by when it ends on the clock.
        self._spending: list[tuple[float, int, CallState]] = []

    def running_programs(self) -> list[str]:
        """Return the programs with a running call. Another thread may call this."""
        return list({call.context.program for call in list(self._running.values())})

    # -- events ------------------------------------------------------------------------------

    def arrive(self, sequence: str, context: CallContext, now: float) -> CallState:
        """A sequence entered the queue. Returns its call, new or known."""
        self.shares.arrive(sequence, context.tenant, context.weight)
        call = self._calls.get(context.call) or self._finished.pop(context.call, None)
        if call is None:
            call = CallState(context=context, policy=self.order.name, clock=self._clock)
            call.hints.extend(f"{name}=ignored: malformed" for name in context.ignored)
            call.enqueue(sequence, now)
            self._stand(call, self.order.enter(call.view(now)), now)
        else:
            call.enqueue(sequence, now)
            self._watch(call, now)
            self.moved.add(sequence)
        self._calls[context.call] = call
        self._of[sequence] = call
        self._note(call, now)
        return call

    def start(self, sequence: str, now: float) -> None:
        """A waiting sequence was scheduled."""
        call = self._of.get(sequence)
        if call is not None:
            self.shares.start(sequence)
            call.start(sequence, now)
            self._held.discard(sequence)
            self._running[sequence] = call
            self._meter_quantum(call)
            self.moved.add(sequence)
            self._note(call, now)

    def preempt(self, sequence: str, now: float) -> None:
        """A running sequence went back to the queue."""
        call = self._of.get(sequence)
        if call is not None:
            call.preemptions += 1
            self.shares.stop(sequence)
            self._running.pop(sequence, None)
            call.enqueue(sequence, now)
            self._watch(call, now)
            # vLLM put it before the other waiting sequences of its call, which have the same rank.
            self.moved |= call.waiting
            self._note(call, now)

    def serve(
        self,
        tokens: Mapping[str, int],
        duration_s: float,
        now: float,
        prefill: Mapping[str, int] | None = None,
    ) -> None:
        """A step took this long. tokens: what it computed for each sequence. prefill: the prompt
        tokens among them, None if unknown."""
        if not tokens:
            # vLLM also reports steps without sequences, which take almost no time.
            return
        self.shares.advance(duration_s, prefill)
        self._step += 1
        self._clock.seconds += duration_s
        spent = []
        for name in self._running.keys() ^ tokens.keys():
            call = self._of.get(name)
            if call is not None and call.corrected_step != self._step:
                call.corrected_step = self._step
                call.correct(tokens, duration_s)
                if call.quantum_left_s <= 0:
                    spent.append(call)
        while self._spending and self._spending[0][0] <= self._clock.seconds:
            due, _, call = heapq.heappop(self._spending)
            if due == call.spends_at and call.charged:
                call.spends_at = math.inf
                if call.quantum_left_s > 0:
                    self._meter_quantum(call)
                elif call.corrected_step != self._step:
                    spent.append(call)
        for call in spent:
            self._review(call, now)
        if self.rule is not None:
            self.rule.served(tokens)

    def leave(self, sequence: str, now: float) -> CallState | None:
        """A sequence finished or was aborted. Returns the call if this was its last sequence."""
        call = self._of.pop(sequence, None)
        if call is None:
            return None
        self.shares.leave(sequence)
        self._held.discard(sequence)
        self._running.pop(sequence, None)
        call.leave(sequence, now)
        self._note(call, now)
        if call.alive:
            # The call waits from now on if its other sequences do.
            self._watch(call, now)
            return None
        del self._calls[call.context.call]
        self._finished[call.context.call] = call
        while len(self._finished) > _REMEMBERED_CALLS:
            self._finished.popitem(last=False)
        return call

    def promote(self, now: float) -> None:
        """Promote the calls that have waited long enough (lines 24 to 30)."""
        while self._starving and self._starving[0][0] <= now:
            _, _, call = heapq.heappop(self._starving)
            if call.waiting_since is not None and not self._review(call, now):
                self._watch(call, now)

    def switch(self, order: Order, now: float) -> None:
        """Switch to another order: all calls enter it anew."""
        self.order = order
        self._starving.clear()
        self._held.clear()
        self.rule = order.rule(self) if order.rule else None
        for call in self._calls.values():
            call.policy, call.level, call.late = order.name, 0, False
            call.resume(now)
            self._stand(call, order.enter(call.view(now)), now)
            self._note(call, now)

    def hold(self, sequence: str, held: bool, now: float, tokens: int = 0, ahead: int = 0) -> None:
        """Put a waiting sequence behind all others, or back into its place. tokens, ahead: its
        context and the programs before it, for the report of its call."""
        call = self._of.get(sequence)
        if call is None:
            return
        if held:
            call.defer(now, tokens, ahead)
            self._held.add(sequence)
        else:
            call.resume(now)
            self._held.discard(sequence)
        # Siblings of the same rank keep their order if they move together.
        self.moved |= call.waiting

    def put_at(self, sequence: str, level: int) -> None:
        """Put a waiting sequence's call behind all calls of its queue with lower levels. FIRST:
        before every queue."""
        call = self._of.get(sequence)
        if call is not None and call.level != level:
            call.level = level
            self._set_rank(call, (self._place(call), *call.rank[1:]))

    def rerank(self, call: CallState, now: float) -> None:
        """Ask the order for a call's rank again. All sequences of the call share it."""
        place, _, entry = call.rank
        self._set_rank(call, (place, self.order.rank(call.view(now)), entry))

    # -- questions ---------------------------------------------------------------------------

    def of(self, sequence: str) -> CallState | None:
        """The call of a sequence."""
        return self._of.get(sequence)

    def sequences(self) -> Iterable[str]:
        """All sequences."""
        return self._of

    def rank(self, sequence: str) -> Rank:
        """The sort key of a sequence, the lowest first. Unknown sequences come first."""
        call = self._of.get(sequence)
        if call is None:
            return _UNKNOWN
        return (DEFERRED, *call.rank[1:]) if sequence in self._held else call.rank

    @property
    def starves_at(self) -> float:
        """The next instant at which a promotion may be due; infinite without candidates."""
        return self._starving[0][0] if self._starving else math.inf

    def waiting_by_queue(self) -> dict[int, int]:
        """The number of waiting sequences in each queue. Safe to call from another thread."""
        found: dict[int, int] = {}
        for call in list(self._calls.values()):
            if call.waiting:
                found[call.queue] = found.get(call.queue, 0) + len(call.waiting)
        return dict(sorted(found.items()))

    def violations(self, alive: Iterable[str]) -> list[str]:
        """Inconsistencies, in words. alive: the sequences in the engine."""
        found = self.shares.violations()
        known, real = set(self._of), set(alive)
        if known != real:
            found.append(f"sequences differ: {sorted(known ^ real)[:5]}")
        if self._held - known or self._held & self._running.keys():
            found.append("sequences are deferred that do not wait")
        for name, call in self._calls.items():
            if not call.alive:
                found.append(f"call {name} has no sequence and was not removed")
            if min(call.service_s, call.waiting_s) < -1e-6:
                found.append(f"call {name} has a negative time")
        return found if self.rule is None else found + self.rule.violations()

    # -- standings ---------------------------------------------------------------------------

    def _review(self, call: CallState, now: float) -> bool:
        """Whether the order moved the call."""
        # At most twice: a demoted call may starve in its new queue at once.
        for changes in range(2):
            standing = self.order.review(call.view(now))
            if standing is None:
                return changes > 0
            if standing.promoted:
                call.settle_wait(now)
                self.promotions += 1
            elif standing.queue > call.queue:
                self.demotions += 1
            self._stand(call, standing, now)
        return True

    def _stand(self, call: CallState, standing: QueueState, now: float) -> None:
        self._entries += 1
        call.stand(standing)
        call.rank = (self._place(call), self.order.rank(call.view(now)), self._entries)
        self._move(call)
        self._meter_quantum(call)
        self._watch(call, now)

    def _set_rank(self, call: CallState, rank: Rank) -> None:
        if rank != call.rank:
            call.rank = rank
            self._move(call)

    def _place(self, call: CallState) -> int:
        return call.queue + call.level

    def _note(self, call: CallState, now: float) -> None:
        if self.rule is not None:
            self.rule.note(call, now)

    def _move(self, call: CallState) -> None:
        self.moved |= call.waiting
        self.moved |= call.running

    def _meter_quantum(self, call: CallState) -> None:
        """Schedule a review for when the call has used its quantum, if it runs until then."""
        due = self._clock.seconds + call.quantum_left_s
        if call.charged and due != call.spends_at and math.isfinite(due):
            self._entries += 1
            call.spends_at = due
            heapq.heappush(self._spending, (due, self._entries, call))

    def _watch(self, call: CallState, now: float) -> None:
        """Schedule a review for when the wait is long enough for a promotion."""
        if call.waiting_since is None:
            return
        wait = self.order.starves_in(call.view(now))
        if math.isfinite(wait):
            self._entries += 1
            # Later than now: a wait of zero length promotes no call.
            due = max(now + wait, math.nextafter(now, math.inf))
            heapq.heappush(self._starving, (due, self._entries, call))
