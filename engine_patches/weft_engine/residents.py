"""Admission of programs to the cache: the medium-term scheduler of one engine. Pure.

Residents keep their contexts between calls: their blocks are the last to be reused, and their calls
come first, after short calls of new programs (see short_calls). A call of another program waits if
the contexts of such calls would exceed the memory that residents leave, unless the engine is idle.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final, Protocol

from weft_engine.call_table import FIRST, CallTable
from weft_engine.loads import ReloadCost
from weft_engine.short_calls import ShortCalls
from weft_engine.step_cost import PrefillPace
from weft_engine.wire import CallContext
from weft_engine.working_sets import WorkingSets

# The fraction of the cache that residents fill. The rest serves other calls, and what residents
# grow beyond their predicted sets.
_SHARE: Final = 0.9
# How much longer than the usual gap a resident may be without a call.
_MARGIN: Final = 1.5
# A call is deferred for at most `beta` times this many prefills of the whole cache.
_HOLD: Final = 8
# Calls with at most this fraction of the cache are never deferred: chats, titles, classifiers.
_SMALL: Final = 1 / 64
# Waiting sequences that one refresh considers.
_CONSIDERED: Final = 64
# Of these, the number beyond the free slots.
_BEYOND_SLOTS: Final = 8
# The most calls that are deferred while other waiting calls were not considered yet.
_MOST_DEFERRED: Final = 256
# Of the considered sequences, the number whose contexts are looked up if they seem too large.
_LOOKED_UP: Final = 8
# The level of programs that are no residents: behind all residents, the oldest first.
_GUEST: Final = 2**30
_SMOOTHING: Final = 0.1


class Memory(Protocol):
    """The current state of an engine's queues and memory."""

    def waiting_names(self) -> Iterable[str]:
        """Waiting sequences, the first ones in order."""

    def running_count(self) -> int:
        """Sequences in the batch."""

    def free_slots(self) -> int:
        """How many sequences can be admitted before all slots are taken."""

    def context_blocks(self, sequence: str) -> int:
        """The blocks of a sequence's context, cached or not."""

    def blocks_to_take(self, sequence: str) -> int:
        """The free blocks that admitting a waiting sequence takes."""


class Residents:
    """Residents of one engine. blocks: of its cache. tokens: the same in tokens. reside: called
    with a program and whether its blocks are the last to be reused. pace: of prefill, measured.
    short: the short calls.

    admitting: how many waiting sequences may be admitted until the next refresh; None for any
    number. due: when a refresh has something to do; infinite if nothing waits for time. deferred:
    the number of deferred sequences.
    """

    def __init__(
        self,
        memory: Memory,
        call_table: CallTable,
        blocks: int,
        tokens: int,
        reside: Callable[[str, bool], None],
        pace: PrefillPace,
        short: ShortCalls,
    ) -> None:
        self.admitting: int | None = None
        self.due = math.inf
        self._memory = memory
        self._calls = call_table
        self._tokens = tokens
        self._reside = reside
        self._short = short
        self._blocks = blocks
        self._sets = WorkingSets(int(_SHARE * blocks))
        self._pace = pace
        self._reload = ReloadCost()
        # The contexts of sequences of programs that were no residents when they started.
        self._guests: dict[str, int] = {}
        # The programs of the sequences that count as calls in the sets.
        self._counted: dict[str, str] = {}
        self._deferred: set[str] = set()
        # The share of a context that is not shared with other programs, on average.
        self._own = 1.0
        self._changed = True
        for sequence in memory.waiting_names():
            self.queued(sequence)

    @property
    def keep_s(self) -> float:
        """How long a resident may be without a call, seconds; 0 if no prefill was measured.

        At least the time of a prefill of the whole cache, which is the break-even of keeping and
        computing again (docs/guides/orders.md). Up to `resident_factor` times as long if most
        programs return by then.
        """
        least, gap_s = self._least_s, self._sets.usual_gap_s()
        wanted = self._most_s if gap_s is None else _MARGIN * gap_s
        return wanted if least < wanted <= self._most_s else least

    @property
    def kept_blocks(self) -> int:
        """The predicted working sets of the residents, in blocks."""
        return self._sets.blocks - self._sets.left

    @property
    def deferred(self) -> int:
        """The number of deferred sequences."""
        return len(self._deferred)

    def queued(self, sequence: str, now: float = 0.0) -> None:
        """A sequence waits: it is new or was preempted."""
        self._changed = True
        call = self._calls.of(sequence)
        if sequence in self._short:
            self._short.queued(sequence)
        if call is None or self._guests.pop(sequence, None) is not None:
            return
        if call.preemptions:
            return
        context = call.context
        if context.program != context.call:
            self._counted[sequence] = context.program
            blocks = self._blocks_of(sequence)
            self._sets.arrive(
                context.program,
                blocks,
                now,
                context.arrival_s,
                context.tenant,
                context.weight,
                context.service_s,
            )
        if self._is_short(sequence, context):
            self._short.queued(sequence)
        self._calls.put_at(sequence, self._level(sequence))

    def started(self, sequence: str) -> None:
        """A waiting sequence was admitted."""
        self._short.started(sequence)
        self._deferred.discard(sequence)
        if self._program(sequence) not in self._sets.residents:
            self._guests[sequence] = self._blocks_of(sequence)
        if self.admitting is not None:
            self.admitting -= 1
            # Refresh before the next step.
            self._changed |= self.admitting == 0

    def returned(self, sequence: str, computed: int, loaded: int, load_s: float) -> None:
        """A sequence runs for the first time. Arguments as for ReloadCost."""
        if self._sets.calls_of(self._counted.get(sequence, "")) > 1:
            self._reload.note(computed, loaded, load_s, self._pace.token_s)

    def freed(self) -> None:
        """Blocks or slots may have become free."""
        self._changed = True

    def left(self, sequence: str, blocks: int, now: float) -> None:
        """A sequence has finished. blocks: those that only it used; 0 if unknown. Call this while
        the call table and the engine know the sequence."""
        self._changed = True
        self._guests.pop(sequence, None)
        self._short.left(sequence)
        self._deferred.discard(sequence)
        if blocks:
            share = min(1.0, blocks / self._memory.context_blocks(sequence))
            self._own += _SMOOTHING * (share - self._own)
        program = self._counted.pop(sequence, None)
        if program is not None:
            call = self._calls.of(sequence)
            service_s = 0.0 if call is None else call.context.service_s + call.service_s
            self._sets.leave(program, blocks or self._blocks_of(sequence), now, service_s)

    def ended(self, program: str) -> None:
        """A program will not call again."""
        self._sets.end(program)
        self._counted = {one: its for one, its in self._counted.items() if its != program}
        self._changed = True

    def reset(self, now: float = 0.0) -> None:
        """The cache was emptied."""
        self._sets.clear()
        self._changed = True

    def dissolve(self) -> None:
        """Another order begins: no program is resident."""
        self._short.clear()
        for program in sorted(self._sets.residents):
            self._reside(program, False)

    def refresh(self, now: float) -> None:
        """Choose the residents again, and defer calls that would take their memory."""
        if not (self._changed or now >= self.due):
            return
        self._changed = False
        keep_s = self.keep_s
        if keep_s > 0:
            self._sets.expire(now - keep_s)
        self._sets.block_s = self._reload.share * self._least_s / self._blocks
        came, gone = self._sets.choose()
        for programs, resident in ((came, True), (gone, False)):
            for program in sorted(programs):
                self._reside(program, resident)
        idle = self._sets.next_idle() if keep_s > 0 else None
        self.due = math.inf if idle is None else max(idle + keep_s, math.nextafter(now, math.inf))
        self._defer(now)

    def violations(self, waiting: Iterable[str]) -> list[str]:
        """Return inconsistencies in words."""
        names = set(waiting)
        strays = self._deferred - names
        found = [f"{sorted(strays)[:5]} are deferred and do not wait"] * bool(strays)
        return found + self._short.violations(names) + self._sets.violations()

    @property
    def _least_s(self) -> float:
        return self._pace.token_s * self._tokens

    @property
    def _most_s(self) -> float:
        return max(1.0, self._calls.order.resident_factor) * self._least_s

    def _blocks_of(self, sequence: str) -> int:
        return math.ceil(self._own * self._memory.context_blocks(sequence))

    def _is_short(self, sequence: str, context: CallContext) -> bool:
        """Whether this is the first call of its program, with a small prompt."""
        blocks = self._memory.context_blocks(sequence)
        most = min(_SMALL * self._tokens, self._short.most_tokens)
        first = not context.service_s and self._sets.calls_of(context.program) <= 1
        return first and blocks * self._tokens <= most * self._blocks

    def _program(self, sequence: str) -> str:
        call = self._calls.of(sequence)
        return sequence if call is None else call.context.program

    def _level(self, sequence: str) -> int:
        if sequence in self._short and sequence in self._short.leading():
            return FIRST
        program = self._program(sequence)
        if program in self._sets.residents:
            return self._sets.level(program)
        return _GUEST

    def _held_by_guests(self) -> int:
        residents = self._sets.residents
        return sum(
            blocks
            for sequence, blocks in self._guests.items()
            if self._program(sequence) not in residents
        )

    def _max_hold_s(self, sequence: str, now: float) -> float:
        call = self._calls.of(sequence)
        if self._reload.cheap:
            return 0.0
        hold_s = self._calls.max_hold_s(sequence, _HOLD * self._least_s, now)
        if call is not None and self._calls.shares.contended:
            # Residents delay calls of other tenants no longer than their contexts are worth.
            hold_s = min(hold_s, self._least_s - (now - call.view(now).queued_s))
        return hold_s

    def _defer(self, now: float) -> None:
        before, self._deferred = self._deferred, set()
        count = min(self._memory.free_slots() + _BEYOND_SLOTS, _CONSIDERED)
        # The calls deferred before are still the last of the queue.
        seen = islice(self._memory.waiting_names(), count)
        waiting = [*self._short.leading(), *seen, *sorted(before)]
        waiting = list(dict.fromkeys(waiting))
        for sequence in before:
            self._calls.hold(sequence, False, now)
        residents = self._sets.residents
        for sequence in waiting:
            self._calls.put_at(sequence, self._level(sequence))
        left = self._blocks - self.kept_blocks - self._held_by_guests()
        running, admitted, looked_up = self._memory.running_count(), 0, 0
        ahead: set[str] = set()
        for sequence in self._in_turn(waiting):
            if self._program(sequence) not in residents:
                blocks = self._blocks_of(sequence)
                if blocks > left and looked_up < _LOOKED_UP:
                    # Much of it may be shared with calls that run.
                    looked_up += 1
                    blocks = min(blocks, self._memory.blocks_to_take(sequence))
                hold_s = 0.0
                if blocks > max(left, _SMALL * self._blocks) and running + admitted > 0:
                    hold_s = self._max_hold_s(sequence, now)
                if hold_s > 0:
                    self._deferred.add(sequence)
                    tokens = self._memory.context_blocks(sequence) * self._tokens // self._blocks
                    self._calls.hold(sequence, True, now, tokens, len(residents) + len(ahead))
                    ahead.add(self._program(sequence))
                    self.due = min(self.due, max(now + hold_s, math.nextafter(now, math.inf)))
                    continue
                left -= blocks
            admitted += 1
        self.admitting = admitted if self._deferred else None
        if not admitted and 0 < len(self._deferred) < _MOST_DEFERRED:
            names = self._memory.waiting_names()
            if any(name not in self._deferred for name in names):
                # Calls further back may fit. They are next once the queue is sorted.
                self.due = math.nextafter(now, math.inf)

    def _in_turn(self, waiting: list[str]) -> list[str]:
        """Return waiting sequences in the order in which they get the memory that residents leave:
        by rank. Contending tenants take turns as for residents, the one with the fewest blocks per
        weight first, so that none gets the memory of others by the deadlines that it states.
        """
        ordered = sorted(waiting, key=self._calls.rank)
        shares, residents = self._calls.shares, self._sets.residents
        if not shares.contended:
            return ordered
        held: dict[str, float] = defaultdict(float)
        for sequence, blocks in self._guests.items():
            tenant = shares.tenant_of(sequence)
            held[tenant] += blocks / shares.weight(tenant)
        queues: dict[str, deque[str]] = defaultdict(deque)
        for sequence in ordered:
            queues[shares.tenant_of(sequence)].append(sequence)
        charge = {tenant: shares.charge(tenant) for tenant in queues}
        found = []
        while queues:
            tenant = min(queues, key=lambda name: (held[name], charge[name], name))
            found.append(sequence := queues[tenant].popleft())
            if self._program(sequence) not in residents:
                held[tenant] += self._blocks_of(sequence) / shares.weight(tenant)
            if not queues[tenant]:
                del queues[tenant]
        return found
