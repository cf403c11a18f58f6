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

from weft_engine.ledger import Ledger
from weft_engine.ranked import Ranked
from weft_engine.rooms import Asking, Chain, KeptRooms, PrefillPace

# Waiting sequences that are looked up again at once, from the best down.
_LOOKED_UP: Final = 8
# So many are held back at most while others that wait have not been asked yet.
_MOST_HELD: Final = 64


class Context(NamedTuple):
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

    def context_of(self, sequence: str) -> Context:
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


class Warmth:
    """Of one engine. cache_tokens: what its cache holds.

    admitting: how many waiting sequences may be admitted until the next look, the first ones; None
    for any number. due: the instant at which somebody need not be held back any longer; infinite
    where nobody is.
    """

    def __init__(self, cache: Cache, ledger: Ledger, cache_tokens: int) -> None:
        self.admitting: int | None = None
        self.due = math.inf
        self._cache = cache
        self._ledger = ledger
        self._cache_tokens = cache_tokens
        self._rooms = KeptRooms()
        self._pace = PrefillPace()
        self._unseen = set(cache.waiting_names())
        self._known: dict[str, Context] = {}
        self._warm = Ranked(ledger.rank)
        self._held: set[str] = set()
        self._changed = True

    @property
    def keep_s(self) -> float:
        """How long room is kept now, seconds."""
        return self._ledger.order.keep_share * self._pace.token_s * self._cache_tokens

    @property
    def kept_blocks(self) -> int:
        """Blocks that are kept for programs between two calls."""
        return self._rooms.blocks

    @property
    def held(self) -> int:
        """Sequences that are held back."""
        return len(self._held)

    def queued(self, sequence: str) -> None:
        """A sequence waits: it is new, or was put back."""
        self._known.pop(sequence, None)
        self._unseen.add(sequence)
        self._changed = True

    def started(self, sequence: str) -> None:
        """A waiting sequence was admitted."""
        self._forget(sequence)
        account = self._ledger.of(sequence)
        if account is not None:
            program = account.context.program
            if self._rooms.of(program):
                self._rooms.take_up(program, self._cache.chain_of(sequence))
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
        account = self._ledger.of(sequence)
        keep_s = self.keep_s
        if account is not None and keep_s > 0 and blocks:
            chain = self._cache.chain_of(sequence)
            self._rooms.keep(account.context.program, blocks, now + keep_s, chain)

    def ended(self, program: str) -> None:
        """A program will not call again."""
        self._rooms.drop(program)
        self._changed = True

    def served(self, tokens: int, sequences: int, duration_s: float) -> None:
        """A step has run."""
        self._pace.note(tokens, sequences, duration_s)

    def reset(self) -> None:
        """The cache was emptied: nothing is known."""
        self._rooms.clear()
        self._unhold()
        self._warm.clear()
        self._known.clear()
        self._unseen = set(self._cache.waiting_names())
        self._changed = True

    def look(self, now: float) -> None:
        """Look up who is new and who is next, and hold back who would take kept room."""
        # What has moved is forgotten when the queues are sorted, which comes next.
        self._warm.stir(self._ledger.moved)
        if not (self._changed or now >= self.due):
            return
        self._changed = False
        # The queue was sorted last while these were held, and has them at its end.
        before = self._held
        self._unhold()
        new, self._unseen = self._unseen, set()
        found = {name: self._look_up(name, now) for name in sorted(new)}
        self._rooms.expire(now)
        rank = self._ledger.rank
        best = list(islice(self._cache.waiting_names(), _LOOKED_UP))
        if self._rooms.blocks:
            # Warm ones are let in past those that are held back.
            self._warm.stir(self._ledger.moved)
            best += self._warm.best(_LOOKED_UP)
            best += sorted(before)
        for name in best:
            if name not in found:
                found[name] = self._look_up(name, now)
        if self._rooms.blocks and best:
            asking = set(best)
            wanted = sum(found[name].blocks for name in asking)
            if not self._rooms.leave_enough(wanted, self._cache.free_blocks()):
                ordered = sorted(asking, key=rank)
                self._hold({name: found[name].blocks for name in ordered}, now)
        self._warm.stir(self._ledger.moved)

    def violations(self, waiting: Iterable[str]) -> list[str]:
        """What is inconsistent, in words; empty if nothing is."""
        strays = (self._unseen | self._warm.names() | self._held | self._known.keys()) - set(
            waiting
        )
        return [f"the cache is watched for {sorted(strays)[:5]}, which do not wait"] * bool(strays)

    def _look_up(self, name: str, now: float) -> Context:
        known = self._known.get(name)
        if known is not None and self._cache.still_cached(name, known.cached):
            return known
        context = self._known[name] = self._cache.context_of(name)
        self._ledger.look(name, context.cached, context.uncached, now)
        if context.cached > context.uncached:
            self._warm.add(name)
        else:
            self._warm.discard(name)
        return context

    def _hold(self, blocks: dict[str, int], now: float) -> None:
        """blocks: that the next ones would take, the best first."""
        keep_s = self.keep_s
        asking = []
        for name, wanted in blocks.items():
            account = self._ledger.of(name)
            program = name if account is None else account.context.program
            patience_s = self._ledger.patience(name, keep_s, now)
            if self._ledger.shares.contended and account is not None:
                # Room of one tenant keeps calls of another one waiting no longer than it is kept.
                waited_s = now - account.view(now).queued_s
                patience_s = min(patience_s, keep_s - waited_s)
            chain = self._cache.chain_of(name) if self._rooms.of(program) else ()
            asking.append(Asking(name, program, wanted, name in self._warm, patience_s, chain))
        held = self._rooms.held(asking, self._cache.free_blocks(), self._cache.running_count())
        if not held:
            return
        self._held = set(held)
        for name in held:
            self._ledger.hold(name, True)
        self.admitting = len(asking) - len(held)
        patience_s = min(one.patience_s for one in asking if one.sequence in self._held)
        soonest = math.nextafter(now, math.inf)
        # Later than now: else this would be asked again for ever in one instant.
        self.due = max(min(self._rooms.next_end(), now + patience_s), soonest)
        if not self.admitting and len(held) < min(_MOST_HELD, self._cache.waiting_count()):
            # Calls behind these may fit. They are next once the queue is sorted.
            self.due = soonest

    def _unhold(self) -> None:
        for name in self._held:
            self._ledger.hold(name, False)
        self._held = set()
        self.admitting = None
        self.due = math.inf

    def _forget(self, sequence: str) -> None:
        self._known.pop(sequence, None)
        self._warm.discard(sequence)
        self._unseen.discard(sequence)
        self._held.discard(sequence)
