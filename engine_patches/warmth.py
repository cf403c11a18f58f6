"""What an order that sees the cache is told: lookups of waiting calls, and room that is kept.

Looking up a context costs time for each of its cached blocks, so few are looked up, and only when
something has happened: a call when it comes or is put back, and then the best of those that wait
whenever blocks may have become free. What waits further behind may have lost its context
unnoticed; it is looked up before it is admitted.
"""

from __future__ import annotations

import math
from itertools import islice
from typing import Final

from engine_patches.compat import Request, SchedulerHooks
from engine_patches.ledger import Ledger
from engine_patches.rooms import Asking, KeptRooms, PrefillPace

# Waiting requests that are looked up again at once, from the best down.
_LOOKED_UP: Final = 8


class Warmth:
    """Of one scheduler. admitting: how many waiting requests may be admitted until the next look,
    the first ones; None for any number. due: the instant at which somebody need not be held back
    any longer; infinite where nobody is."""

    def __init__(self, scheduler: SchedulerHooks, ledger: Ledger) -> None:
        self.admitting: int | None = None
        self.due = math.inf
        self._scheduler = scheduler
        self._ledger = ledger
        self._rooms = KeptRooms()
        self._pace = PrefillPace()
        self._cache_tokens: int = len(scheduler.kv_blocks()) * scheduler.block_size
        self._unseen: dict[str, Request] = {}
        self._warm: dict[str, Request] = {}
        self._held: dict[str, Request] = {}
        self._changed = False

    @property
    def keep_s(self) -> float:
        """How long room is kept now, seconds."""
        return self._ledger.order.keep_share * self._pace.token_s * self._cache_tokens

    def queued(self, request: Request) -> None:
        """A request waits: it is new, or was put back."""
        self._unseen[request.request_id] = request
        self._changed = True

    def started(self, sequence: str) -> None:
        """A waiting request was admitted."""
        self._forget(sequence)
        account = self._ledger.of(sequence)
        if account is not None:
            self._rooms.drop(account.context.program)
        if self.admitting is not None:
            self.admitting -= 1

    def freeing(self, request: Request, program: str, now: float) -> None:
        """A request is about to give its blocks back."""
        self._changed = True
        if request.is_finished():
            self._forget(request.request_id)
            keep_s = self.keep_s
            if keep_s > 0:
                blocks = self._scheduler.blocks_held_alone(request)
                self._rooms.keep(program, blocks, now + keep_s)

    def ended(self, program: str) -> None:
        """A program will not call again."""
        self._rooms.drop(program)
        self._changed = True

    def served(self, tokens: int, sequences: int, duration_s: float) -> None:
        """A step has run."""
        self._pace.note(tokens, sequences, duration_s)

    def reset(self) -> None:
        """The cache was emptied, or another order is followed: nothing is known."""
        self._rooms.clear()
        self._unhold()
        self._warm.clear()
        self._unseen = {r.request_id: r for r in self._scheduler.waiting_requests()}
        self._changed = True

    def look(self, now: float) -> None:
        """Look up who is new and who is next, and hold back who would take kept room."""
        if not (self._changed or now >= self.due):
            return
        self._changed = False
        self._unhold()
        unseen, self._unseen = self._unseen, {}
        for request in unseen.values():
            self._look_up(request, now)
        self._rooms.expire(now)
        best = self._best()
        found = [(request, self._look_up(request, now)) for request in best]
        if self._rooms.blocks:
            found.sort(key=lambda one: self._ledger.rank(one[0].request_id))
            self._hold(found, now)

    def _best(self) -> list[Request]:
        """The next ones by the order at hand, and warm ones, which may have come after it."""
        rank = self._ledger.rank
        first = list(islice(self._scheduler.waiting_requests(), _LOOKED_UP))
        warm = sorted(self._warm.values(), key=lambda r: rank(r.request_id))[:_LOOKED_UP]
        return list({r.request_id: r for r in (*first, *warm)}.values())

    def _look_up(self, request: Request, now: float) -> int:
        name = request.request_id
        cached, blocks = self._scheduler.cached_context(request)
        uncached = int(request.num_tokens) - cached
        self._ledger.look(name, cached, uncached, now)
        if cached > uncached:
            self._warm[name] = request
        else:
            self._warm.pop(name, None)
        return blocks

    def _hold(self, found: list[tuple[Request, int]], now: float) -> None:
        keep_s = self.keep_s
        asking = []
        for request, blocks in found:
            name = request.request_id
            account = self._ledger.of(name)
            program = name if account is None else account.context.program
            patience = self._ledger.patience(name, keep_s, now)
            asking.append(Asking(name, program, blocks, name in self._warm, patience))
        held = self._rooms.held(asking, self._scheduler.free_blocks(), len(self._scheduler.running))
        if not held:
            return
        patience_s = {one.sequence: one.patience_s for one in asking}
        self._held = {r.request_id: r for r, _ in found if r.request_id in set(held)}
        for name in held:
            self._ledger.hold(name, True)
        self.admitting = len(found) - len(held)
        first = min(patience_s[name] for name in held)
        # Later than now: else this would be asked again for ever in one instant.
        self.due = max(min(self._rooms.next_end(), now + first), math.nextafter(now, math.inf))

    def _unhold(self) -> None:
        for name in self._held:
            self._ledger.hold(name, False)
        self._held = {}
        self.admitting = None
        self.due = math.inf

    def _forget(self, sequence: str) -> None:
        for known in (self._unseen, self._warm, self._held):
            known.pop(sequence, None)
