"""What an order that sees the cache is told: lookups of waiting calls, and room that is kept. Pure.

Looking up a context costs time for each of its cached blocks, so few are looked up, and only when
something has happened: a call when it comes or is put back, and then the best of those that wait
whenever blocks may have become free, if the end of what they found is not where it was. What waits
further behind may have lost its context unnoticed; it is looked up before it is admitted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import islice
from typing import Final, NamedTuple, Protocol

from weft_engine.call_table import CallTable
from weft_engine.rank_index import RankIndex
from weft_engine.reservations import Admission, CacheReservations, Chain, PrefillPace

# Waiting sequences that are looked up again at once, from the best down.
_LOOKED_UP: Final = 8
# So many are held back at most while others that wait have not been asked yet.
_MOST_HELD: Final = 64


class ContextSnapshot(NamedTuple):
    """Of a waiting sequence: tokens that the cache has and lacks, and how many free blocks it takes
    to admit it."""

    cached: int
    uncached: int
    blocks: int


class Cache(Protocol):
    """An engine's cache and queue, as they are now."""

    def waiting_names(self) -> Iterable[str]:
        """Waiting sequences, the best first as far as they are sorted."""
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

    def context_of(self, sequence: str) -> ContextSnapshot:
        """Look up a waiting sequence."""
        ...

    def chain_of(self, sequence: str) -> Chain:
        """A sequence's context, as KeptRooms tells contexts apart. Not to be changed; grows with
        the context."""
        ...

    def still_cached(self, sequence: str, tokens: int) -> bool:
        """Whether a sequence of which so many tokens were found would find as many again: the block
        where they end is there, the one after it is not. Costs next to nothing."""
        ...


class CacheAffinity:
    """Of one engine. cache_tokens: what its cache holds.

    admitting: how many waiting sequences may be admitted until the next look, the first ones; None
    for any number. due: the instant at which somebody need not be held back any longer; infinite
    where nobody is.
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
        """How long room is kept now, seconds."""
        return self._calls.order.reserve_factor * self._pace.token_s * self._cache_tokens

    @property
    def kept_blocks(self) -> int:
        """Blocks that are kept for programs between two calls."""
        return self._reservations.blocks

    @property
    def held(self) -> int:
        """Sequences that are held back."""
        return len(self._deferred)

    def queued(self, sequence: str) -> None:
        """A sequence waits: it is new, or was put back."""
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
            # The next ones are asked before the next step.
            self._changed |= self.admitting == 0

    def freed(self) -> None:
        """Blocks or slots may have become free."""
        self._changed = True

    def left(self, sequence: str, blocks: int, now: float) -> None:
        """A sequence has ended. blocks: what it had alone, in the cache from now on. To be told
        while the ledger still knows its call, and the cache its context."""
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

    def reset(self) -> None:
        """The cache was emptied: nothing is known."""
        self._reservations.clear()
        self._undefer()
        self._warm.clear()
        self._known.clear()
        self._unseen = set(self._cache.waiting_names())
        self._changed = True

    def look(self, now: float) -> None:
        """Look up who is new and who is next, and hold back who would take kept room."""
        # What has moved is forgotten when the queues are sorted, which comes next.
        self._warm.invalidate(self._calls.moved)
        if not (self._changed or now >= self.due):
            return
        self._changed = False
        # The queue was sorted last while these were held, and has them at its end.
        before = self._deferred
        self._undefer()
        new, self._unseen = self._unseen, set()
        found = {name: self._look_up(name, now) for name in sorted(new)}
        self._reservations.expire(now)
        rank = self._calls.rank
        best = list(islice(self._cache.waiting_names(), _LOOKED_UP))
        if self._reservations.blocks:
            # Warm ones are let in past those that are held back.
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
        """What is inconsistent, in words; empty if nothing is."""
        strays = (self._unseen | self._warm.names() | self._deferred | self._known.keys()) - set(
            waiting
        )
        return [f"the cache is watched for {sorted(strays)[:5]}, which do not wait"] * bool(strays)

    def _look_up(self, name: str, now: float) -> ContextSnapshot:
        known = self._known.get(name)
        if known is not None and self._cache.still_cached(name, known.cached):
            return known
        context = self._known[name] = self._cache.context_of(name)
        self._calls.look(name, context.cached, context.uncached, now)
        if context.cached > context.uncached:
            self._warm.add(name)
        else:
            self._warm.discard(name)
        return context

    def _defer(self, blocks: dict[str, int], now: float) -> None:
        """blocks: that the next ones would take, the best first."""
        keep_s = self.keep_s
        asking = []
        for name, wanted in blocks.items():
            call = self._calls.of(name)
            program = name if call is None else call.context.program
            max_hold_s = self._calls.max_hold_s(name, keep_s, now)
            if self._calls.shares.contended and call is not None:
                # Room of one tenant keeps calls of another one waiting no longer than it is kept.
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
        for name in held:
            self._calls.hold(name, True)
        self.admitting = len(asking) - len(held)
        max_hold_s = min(one.max_hold_s for one in asking if one.sequence in self._deferred)
        soonest = math.nextafter(now, math.inf)
        # Later than now: else this would be asked again for ever in one instant.
        self.due = max(min(self._reservations.next_end(), now + max_hold_s), soonest)
        if not self.admitting and len(held) < min(_MOST_HELD, self._cache.waiting_count()):
            # Calls behind these may fit. They are next once the queue is sorted.
            self.due = soonest

    def _undefer(self) -> None:
        for name in self._deferred:
            self._calls.hold(name, False)
        self._deferred = set()
        self.admitting = None
        self.due = math.inf

    def _forget(self, sequence: str) -> None:
        self._known.pop(sequence, None)
        self._warm.discard(sequence)
        self._unseen.discard(sequence)
        self._deferred.discard(sequence)
