"""Admission of programs to the cache: the medium-term scheduler of one engine. Pure.

Residents keep their contexts between calls: their blocks are the last to be reused, and their calls
come first, after short calls of new programs (see short_calls). A call of another program waits for
a place, and a further call of a resident or one without a program until what it adds to the
contexts that are kept or in use fits. These waits are bounded by what they save: see `_HOLD` and
`_TURNS`.
"""

from __future__ import annotations

import logging
import math
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, Final, Protocol

from weft_engine.call_state import CallState
from weft_engine.call_table import FIRST, CallTable
from weft_engine.context_tree import HELD, KEPT
from weft_engine.loads import ReloadCost
from weft_engine.short_calls import ShortCalls
from weft_engine.step_cost import PrefillPace
from weft_engine.wire import CallContext
from weft_engine.working_sets import Thread, WorkingSets

logger = logging.getLogger("vllm.weft")

# The fraction of the cache that the predicted sets of residents fill. The rest serves other calls,
# and what residents grow beyond their predicted sets.
_SHARE: Final = 0.9
# How much longer than the usual gap a resident may be without a call.
_MARGIN: Final = 1.5
# A call is deferred for this many times as long as it takes to compute or load its context and
# those that it would evict.
_HOLD: Final = 2
# Then its program takes a place, or the call runs without one if its context is too long. Such
# turns cost at most one of this number of seconds of the engine's time.
_TURNS: Final = 16
# Calls with at most this fraction of the cache are never deferred.
_TINY: Final = 1 / 512
# A call that costs less than this share of computing its context and those that it would evict
# needs no turn: the programs whose contexts it evicts load them.
_CHEAP: Final = 0.5
# The longest prompt of a short call, as a fraction of the cache.
_SHORT: Final = 1 / 64
# Waiting sequences that one refresh considers.
_CONSIDERED: Final = 64
# Of these, the number beyond the free slots.
_BEYOND_SLOTS: Final = 8
# The most calls that are deferred while other waiting calls were not considered yet.
_MOST_DEFERRED: Final = 256
# Residents that `/weft/state` names.
_SHOWN: Final = 1024
# The level of programs that are no residents: behind all residents, the oldest first.
_GUEST: Final = 2**30
# The level of further calls of residents that have waited for memory for long enough.
_LATE: Final = -_GUEST


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

    def context_hashes(self, sequence: str) -> Sequence[bytes]:
        """The hashes of the full blocks of a sequence's context."""

    def loadable_tokens(self, sequence: str) -> int:
        """The tokens of a new sequence's context that host memory has and the cache does not."""


class Residents:
    """Residents of one engine. blocks: of its cache. tokens: the same in tokens. reside: called
    with a program and whether its blocks are the last to be reused. pace: of prefill, measured.
    short: the short calls.

    admitting: how many waiting sequences may be admitted until the next refresh; None for any
    number.
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
        self._due = math.inf
        self._memory = memory
        self._calls = call_table
        self._tokens = tokens
        self._reside = reside
        self._short = short
        self._blocks = blocks
        self._sets = WorkingSets(int(_SHARE * blocks), blocks)
        self._pace = pace
        self._reload = ReloadCost()
        # The threads of all sequences, and the sequences that run.
        self._threads: dict[str, Thread] = {}
        self._running: set[str] = set()
        self._deferred: set[str] = set()
        # The sequence whose turn it is, and when the next turn may begin.
        self._turn = ""
        self._next_turn = 0.0
        # Since when no sequence runs.
        self._idle_since = math.inf
        # Further calls of residents that have waited long enough.
        self._late: set[str] = set()
        # Whether a context was reported that can never stay.
        self._large = False
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
    def due(self) -> float:
        """When a refresh has something to do; infinite if nothing waits for time."""
        return -math.inf if self._changed else self._due

    @property
    def deferred(self) -> int:
        """The number of deferred sequences."""
        return len(self._deferred)

    def programs(self) -> dict[str, Any]:
        """Return the residents, and the programs that wait for memory with the number of those
        before them, for `/weft/state`. Another thread calls this: a copy of a set is one step.
        """
        held = [self._calls.of(sequence) for sequence in list(self._deferred)]
        return {
            "resident": list(self._sets.residents)[:_SHOWN],
            "held": {call.context.program: call.programs_ahead for call in held if call},
        }

    def queued(self, sequence: str, now: float = 0.0) -> None:
        """A sequence waits: it is new or was preempted."""
        self._changed = True
        call = self._calls.of(sequence)
        if sequence in self._short:
            self._short.queued(sequence)
        if sequence in self._running:
            self._stop(sequence)
        if call is None or sequence in self._threads:
            return
        context = call.context
        blocks, chain = self._context_of(sequence)
        if context.program == context.call:
            self._threads[sequence] = self._sets.single(blocks, chain)
        else:
            self._threads[sequence] = self._sets.arrive(
                context.program,
                blocks,
                now,
                context.arrival_s,
                context.tenant,
                context.weight,
                context.critical_path_s,
                chain,
            )
            if blocks > self._sets.blocks:
                self._report_large(call, blocks)
        if self._is_short(sequence, context):
            self._short.queued(sequence)
        self._calls.put_at(sequence, self._level(sequence))

    def started(self, sequence: str) -> None:
        """A waiting sequence was admitted."""
        self._idle_since = math.inf
        self._short.started(sequence)
        self._deferred.discard(sequence)
        self._late.discard(sequence)
        if sequence == self._turn:
            self._turn = ""
        thread = self._threads.get(sequence)
        if thread is not None and sequence not in self._running:
            self._sets.tree.hold(thread.context, HELD)
            self._running.add(sequence)
        if self.admitting is not None:
            self.admitting -= 1
            # Refresh before the next step.
            self._changed |= self.admitting == 0

    def returned(self, sequence: str, computed: int, loaded: int, load_s: float) -> None:
        """A sequence runs for the first time. Arguments as for ReloadCost."""
        if self._sets.calls_of(self._program(sequence)) > 1:
            self._reload.note(computed, loaded, load_s, self._pace.token_s)

    def freed(self) -> None:
        """Blocks or slots may have become free."""
        self._changed = True

    def left(self, sequence: str, now: float) -> None:
        """A sequence has finished. Call this while the call table and the engine know it."""
        self._changed = True
        self._short.left(sequence)
        self._deferred.discard(sequence)
        self._late.discard(sequence)
        if sequence == self._turn:
            self._turn = ""
        if sequence in self._running:
            self._stop(sequence)
        thread = self._threads.pop(sequence, None)
        if thread is not None:
            call = self._calls.of(sequence)
            service_s = 0.0 if call is None else call.context.critical_path_s + call.service_s
            blocks, chain = self._context_of(sequence)
            self._sets.leave(thread, blocks, now, service_s, chain)

    def ended(self, program: str) -> None:
        """A program will not call again."""
        self._sets.end(program)
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
        if now < self.due:
            return
        self._changed = False
        keep_s = self.keep_s
        if keep_s > 0:
            self._sets.expire(now - keep_s)
        self._sets.block_s = self._reload.share * self._least_s / self._blocks
        came, gone = self._sets.choose()
        for programs, resident in ((gone, False), (came, True)):
            for program in sorted(programs):
                self._reside(program, resident)
        idle = self._sets.next_idle() if keep_s > 0 else None
        self._due = math.inf if idle is None else max(idle + keep_s, math.nextafter(now, math.inf))
        self._defer(now)

    def violations(self, waiting: Iterable[str]) -> list[str]:
        """Return inconsistencies in words."""
        names = set(waiting)
        strays = self._deferred - names
        found = [f"{sorted(strays)[:5]} are deferred and do not wait"] * bool(strays)
        for sequence, thread in self._threads.items():
            kept = bool(thread.context.holders[KEPT])
            if thread.context.holders[HELD] != kept + (sequence in self._running):
                found.append(f"the context of {sequence} is counted as in use, or is not")
        if self._running - self._threads.keys():
            found.append("sequences run without a context")
        return found + self._short.violations(names) + self._sets.violations()

    @property
    def _least_s(self) -> float:
        return self._pace.token_s * self._tokens

    @property
    def _most_s(self) -> float:
        return max(1.0, self._calls.order.resident_factor) * self._least_s

    def _context_of(self, sequence: str) -> tuple[int, Sequence[bytes]]:
        return self._memory.context_blocks(sequence), self._memory.context_hashes(sequence)

    def _report_large(self, call: CallState, blocks: int) -> None:
        tokens = [count * self._tokens // self._blocks for count in (blocks, self._sets.blocks)]
        why = "never kept: its context has {} tokens, and at most {} stay between calls".format(
            *tokens
        )
        call.add_hints([f"memory={why}"])
        if not self._large:
            self._large = True
            logger.warning("a call is %s; it waits only for a limited time", why)

    def _stop(self, sequence: str) -> None:
        self._running.remove(sequence)
        self._sets.tree.release(self._threads[sequence].context, HELD)

    def _is_short(self, sequence: str, context: CallContext) -> bool:
        """Whether this is the first call of its program, with a small prompt."""
        blocks = self._memory.context_blocks(sequence)
        most = min(_SHORT * self._tokens, self._short.most_tokens)
        first = not context.service_s and self._sets.calls_of(context.program) <= 1
        return first and blocks * self._tokens <= most * self._blocks

    def _program(self, sequence: str) -> str:
        call = self._calls.of(sequence)
        return sequence if call is None else call.context.program

    def _in_program(self, call: CallState) -> bool:
        return self._sets.calls_of(call.context.program) > 0

    def _level(self, sequence: str) -> int:
        if sequence in self._short and sequence in self._short.leading():
            return FIRST
        program = self._program(sequence)
        if program in self._sets.residents:
            return _LATE if sequence in self._late else self._sets.level(program)
        return _GUEST

    def _takes_place(self, call: CallState) -> bool:
        """A call has waited long enough. Whether its program becomes a resident."""
        contended = self._calls.shares.contended
        return (
            self._in_program(call) and not contended and self._sets.take_place(call.context.program)
        )

    def _max_hold_s(self, call: CallState, cost_s: float, bounded: bool, now: float) -> float:
        """Return for how long a call may be deferred from now on. cost_s: to compute or load its
        context and those that it would evict. bounded: it needs no turn."""
        hold_s = _HOLD * cost_s - call.memory_wait_s
        if self._calls.shares.contended:
            # Residents delay calls of other tenants no longer than their contexts are worth.
            return min(hold_s, self._least_s - (now - call.view(now).queued_s))
        if bounded:
            return hold_s
        return max(hold_s, math.inf if self._turn else self._next_turn - now)

    def _cost_s(self, sequence: str, adds: int, evicts: int) -> float:
        """Return the seconds to compute or load the blocks that a sequence adds, and those that it
        evicts when they are needed again."""
        loaded = self._memory.loadable_tokens(sequence) * self._blocks / self._tokens
        saved = min(loaded, adds) * (1.0 - self._reload.loading)
        return (adds - saved + evicts * self._reload.share) * self._least_s / self._blocks

    def _defer(self, now: float) -> None:
        before, self._deferred = self._deferred, set()
        count = min(self._memory.free_slots() + _BEYOND_SLOTS, _CONSIDERED)
        # The calls deferred before are still the last of the queue.
        seen = islice(self._memory.waiting_names(), count)
        turn = [self._turn] * bool(self._turn)
        waiting = [*self._short.leading(), *turn, *seen, *sorted(before)]
        waiting = list(dict.fromkeys(waiting))
        for sequence in before:
            self._calls.hold(sequence, False, now)
        residents = self._sets.residents
        for sequence in waiting:
            self._calls.put_at(sequence, self._level(sequence))
        left = self._blocks - self._sets.tree.used[HELD] - self._sets.reserved
        running, admitted, hungry = self._memory.running_count(), 0, False
        if not (running or self._running):
            self._idle_since = min(self._idle_since, now)
        ahead: set[str] = set()
        for sequence in self._in_turn(waiting):
            call, thread = self._calls.of(sequence), self._threads.get(sequence)
            resident = self._program(sequence) in residents
            if call is None or thread is None or (resident and thread.wanted):
                admitted += 1
                continue
            adds = self._sets.tree.adds([thread.context], HELD)
            if sequence in self._short:
                admitted += 1
                left -= adds
                continue
            # A program without a place would lose its context again.
            room = left if resident or not self._in_program(call) else 0
            tight = adds > max(room, _TINY * self._blocks) and sequence != self._turn
            # Residents that are between two calls need their contexts soon.
            if tight and (running + admitted > 0 or (residents and adds > left)):
                evicts = adds - max(0, min(adds, left))
                cost_s = self._cost_s(sequence, adds, evicts)
                cheap = cost_s < _CHEAP * (adds + evicts) * self._least_s / self._blocks
                hold_s = self._max_hold_s(call, cost_s, resident or cheap, now)
                if running + admitted == 0:
                    # The seconds of an idle engine are not saved for later turns.
                    hold_s = min(hold_s, self._idle_since + _HOLD * cost_s - now)
                if hold_s > 0:
                    self._deferred.add(sequence)
                    tokens = self._memory.context_blocks(sequence) * self._tokens // self._blocks
                    self._calls.hold(sequence, True, now, tokens, len(residents) + len(ahead))
                    ahead.add(self._program(sequence))
                    self._due = min(self._due, max(now + hold_s, math.nextafter(now, math.inf)))
                    if resident:
                        # What its program waits for comes before the calls of others.
                        left, hungry = 0, True
                    continue
                if resident:
                    self._late.add(sequence)
                    self._calls.put_at(sequence, _LATE)
                elif not cheap:
                    self._next_turn = now + _TURNS * cost_s
                    if self._takes_place(call):
                        self._changed = True
                        self._due = math.nextafter(now, math.inf)
                    else:
                        self._turn = sequence
            left -= adds
            admitted += 1
        self._sets.reopen(hungry)
        self.admitting = admitted if self._deferred else None
        if not admitted and 0 < len(self._deferred) < _MOST_DEFERRED:
            names = self._memory.waiting_names()
            if any(name not in self._deferred for name in names):
                # Calls further back may fit. They are next once the queue is sorted.
                self._due = math.nextafter(now, math.inf)

    def _in_turn(self, waiting: list[str]) -> list[str]:
        """Return waiting sequences in the order in which they get the memory that residents leave:
        by rank. Contending tenants take turns as for residents, the one with the fewest blocks per
        weight first, so that none gets the memory of others by the deadlines that it states.
        """
        ordered = sorted(waiting, key=self._calls.rank)
        shares = self._calls.shares
        if not shares.contended:
            return ordered
        held: dict[str, float] = defaultdict(float)
        for sequence in self._running:
            tenant = shares.tenant_of(sequence)
            held[tenant] += self._guest_blocks(sequence) / shares.weight(tenant)
        queues: dict[str, deque[str]] = defaultdict(deque)
        for sequence in ordered:
            queues[shares.tenant_of(sequence)].append(sequence)
        charge = {tenant: shares.charge(tenant) for tenant in queues}
        found = []
        while queues:
            tenant = min(queues, key=lambda name: (held[name], charge[name], name))
            found.append(sequence := queues[tenant].popleft())
            held[tenant] += self._guest_blocks(sequence) / shares.weight(tenant)
            if not queues[tenant]:
                del queues[tenant]
        return found

    def _guest_blocks(self, sequence: str) -> int:
        """Return the blocks of a context, 0 if its program is a resident."""
        thread = self._threads.get(sequence)
        guest = thread is not None and self._program(sequence) not in self._sets.residents
        return thread.context.blocks if thread is not None and guest else 0
