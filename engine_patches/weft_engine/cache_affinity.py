"""Cache affinity: prefix cache lookups of waiting calls, and calls deferred for reservations. Pure.

A lookup takes time for each cached block, so there are few of them: a call is looked up when it
arrives or is preempted, and the first waiting calls again when blocks may have become free and the
end of their cached prefix has moved. A call further back may lose its context unnoticed; it is
looked up again before it is admitted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import islice
from typing import Final, NamedTuple, Protocol

from weft_engine.call_table import CallTable
from weft_engine.rank_index import RankIndex
from weft_engine.reservations import Admission, CacheReservations, Chain, PrefillPace

# Waiting sequences that one refresh looks up again, from the first on.
_LOOKED_UP: Final = 8
# The most calls that are deferred while other waiting calls were not considered yet.
_MOST_HELD: Final = 64


class ContextSnapshot(NamedTuple):
    """A cache lookup of a waiting sequence: cached tokens, missing tokens, and the free blocks that
    admitting it takes."""

    cached: int
    uncached: int
    blocks: int


class Cache(Protocol):
    """The current state of an engine's cache and queues."""

    def waiting_names(self) -> Iterable[str]:
        """Waiting sequences, the first ones in order."""
        ...

    def waiting_count(self) -> int:
        """Waiting sequences."""
        ...

    def running_count(self) -> int:
        """Sequences in the batch."""
        ...

    def free_blocks(self) -> int:
        """KV blocks that are not in use."""
        ...

    def context_snapshot(self, sequence: str) -> ContextSnapshot:
        """Look up a waiting sequence."""
        ...

    def chain_of(self, sequence: str) -> Chain:
        """The block hashes of a sequence's context (see CacheReservations). Read-only; the list
        grows with the context."""
        ...

    def still_cached(self, sequence: str, tokens: int) -> bool:
        """Whether a lookup would find this many tokens again: the block at their end is cached and
        the next one is not. Very cheap."""
        ...


class CacheAffinity:
    """Cache affinity of one engine. cache_tokens: the capacity of its cache.

    admitting: how many waiting sequences may be admitted until the next refresh; None for any
    number. due: when a deferred call may be admitted; infinite without deferred calls.
    """

    def __init__(self, cache: Cache, call_table: CallTable, cache_tokens: int) -> None:
        self.admitting: int | None = None
        self.due = math.inf
        self._cache = cache
        self._calls = call_table
        self._cache_tokens = cache_tokens
        self._reservations = CacheReservations()
        self._pace = PrefillPace()
        self._unseen = set(cache.waiting_names())
        self._known: dict[str, ContextSnapshot] = {}
        self._warm = RankIndex(call_table.rank)
        self._deferred: set[str] = set()
        self._changed = True

    @property
    def keep_s(self) -> float:
        """How long blocks stay reserved, seconds."""
        return self._calls.order.reserve_factor * self._pace.token_s * self._cache_tokens

    @property
    def kept_blocks(self) -> int:
        """Blocks that are reserved for programs between two calls."""
        return self._reservations.blocks

    @property
    def deferred(self) -> int:
        """The number of deferred sequences."""
        return len(self._deferred)

    def queued(self, sequence: str, now: float = 0.0) -> None:
        """A sequence waits: it is new or was preempted."""
        self._known.pop(sequence, None)
        self._unseen.add(sequence)
        self._changed = True

    def started(self, sequence: str) -> None:
        """A waiting sequence was admitted."""
        self._forget(sequence)
        call = self._calls.of(sequence)
        if call is not None:
            program = call.context.program
            if self._reservations.of(program):
                self._reservations.claim(program, self._cache.chain_of(sequence))
        if self.admitting is not None:
            self.admitting -= 1
            # Refresh before the next step.
            self._changed |= self.admitting == 0

    def returned(self, sequence: str, computed: int, loaded: int, load_s: float) -> None:
        """See Residents. Reservations do not learn from loads."""

    def freed(self) -> None:
        """Blocks or slots may have become free."""
        self._changed = True

    def left(self, sequence: str, blocks: int, now: float) -> None:
        """A sequence has finished. blocks: those that only it used and that stay cached. Call this
        while the call table and the cache still know the sequence."""
        self._changed = True
        self._forget(sequence)
        call = self._calls.of(sequence)
        keep_s = self.keep_s
        if call is not None and keep_s > 0 and blocks:
            chain = self._cache.chain_of(sequence)
            self._reservations.keep(call.context.program, blocks, now + keep_s, chain)

    def ended(self, program: str) -> None:
        """A program will not call again."""
        self._reservations.drop(program)
        self._changed = True

    def served(self, tokens: int, sequences: int, duration_s: float) -> None:
        """A step has run."""
        self._pace.note(tokens, sequences, duration_s)

    def reset(self, now: float = 0.0) -> None:
        """The cache was emptied: forget all lookups."""
        self._reservations.clear()
        self._undefer(now)
        self._warm.clear()
        self._known.clear()
        self._unseen = set(self._cache.waiting_names())
        self._changed = True

    def refresh(self, now: float) -> None:
        """Look up new and next calls, and defer calls that would take reserved blocks."""
        # The queues are sorted next, which clears `moved`.
        self._warm.invalidate(self._calls.moved)
        if not (self._changed or now >= self.due):
            return
        self._changed = False
        # The queue was last sorted with these calls at its end.
        before = self._deferred
        self._undefer(now)
        new, self._unseen = self._unseen, set()
        found = {name: self._look_up(name, now) for name in sorted(new)}
        self._reservations.expire(now)
        rank = self._calls.rank
        best = list(islice(self._cache.waiting_names(), _LOOKED_UP))
        if self._reservations.blocks:
            # Cached calls are admitted past deferred ones.
            self._warm.invalidate(self._calls.moved)
            best += self._warm.best(_LOOKED_UP)
            best += sorted(before)
        for name in best:
            if name not in found:
                found[name] = self._look_up(name, now)
        if self._reservations.blocks and best:
            asking = set(best)
            wanted = sum(found[name].blocks for name in asking)
            if not self._reservations.leave_enough(wanted, self._cache.free_blocks()):
                ordered = sorted(asking, key=rank)
                self._defer({name: found[name].blocks for name in ordered}, now)
        self._warm.invalidate(self._calls.moved)

    def violations(self, waiting: Iterable[str]) -> list[str]:
        """Return inconsistencies in words."""
        strays = (self._unseen | self._warm.names() | self._deferred | self._known.keys()) - set(
            waiting
        )
        return [f"cache lookups of {sorted(strays)[:5]}, which do not wait"] * bool(strays)

    def _look_up(self, name: str, now: float) -> ContextSnapshot:
        known = self._known.get(name)
        if known is not None and self._cache.still_cached(name, known.cached):
            return known
        context = self._known[name] = self._cache.context_snapshot(name)
        self._calls.update_context(name, context.cached, context.uncached, now)
        if context.cached > context.uncached:
            self._warm.add(name)
        else:
            self._warm.discard(name)
        return context

    def _defer(self, blocks: dict[str, int], now: float) -> None:
        """blocks: the blocks that the next calls would take, in order."""
        keep_s = self.keep_s
        asking = []
        for name, wanted in blocks.items():
            call = self._calls.of(name)
            program = name if call is None else call.context.program
            max_hold_s = self._calls.max_hold_s(name, keep_s, now)
            if self._calls.shares.contended and call is not None:
                # A reservation delays calls of other tenants no longer than it lasts.
                waited_s = now - call.view(now).queued_s
                max_hold_s = min(max_hold_s, keep_s - waited_s)
            chain = self._cache.chain_of(name) if self._reservations.of(program) else ()
            asking.append(Admission(name, program, wanted, name in self._warm, max_hold_s, chain))
        held = self._reservations.held(
            asking, self._cache.free_blocks(), self._cache.running_count()
        )
        if not held:
            return
        self._deferred = set(held)
        programs = {one.sequence: one.program for one in asking}
        before: set[str] = set()
        for name in held:
            context, ahead = self._known[name], self._reservations.programs + len(before)
            self._calls.hold(name, True, now, context.cached + context.uncached, ahead)
            before.add(programs[name])
        self.admitting = len(asking) - len(held)
        max_hold_s = min(one.max_hold_s for one in asking if one.sequence in self._deferred)
        soonest = math.nextafter(now, math.inf)
        # Later than now: otherwise this would repeat in one instant for ever.
        self.due = max(min(self._reservations.next_end(), now + max_hold_s), soonest)
        if not self.admitting and len(held) < min(_MOST_HELD, self._cache.waiting_count()):
            # Calls further back may fit. They are next once the queue is sorted.
            self.due = soonest

    def _undefer(self, now: float) -> None:
        for name in self._deferred:
            self._calls.hold(name, False, now)
        self._deferred = set()
        self.admitting = None
        self.due = math.inf

    def _forget(self, sequence: str) -> None:
        self._known.pop(sequence, None)
        self._warm.discard(sequence)
        self._unseen.discard(sequence)
        self._deferred.discard(sequence)
