"""Cache reservations for programs between two calls, and the calls that they defer. Pure.

If a program calls again soon, its context is still cached unless another call took its blocks.
Keeping b of n blocks unused for t seconds costs b/n of the engine's work in t. Computing them again
costs b/n of a prefill of the whole cache. So a reservation pays for about as long as that prefill
takes, whatever the length of the context. This is the break-even rule of the rent-or-buy problem:
it costs at most twice as much as knowing when the program returns.
"""

from __future__ import annotations

import heapq
import itertools
import math
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

# One hash for each full block of a context; each covers the block and all blocks before it.
Chain = Sequence[Any]

# Steps with fewer tokens are not limited by arithmetic, so their time says little about prefill.
_PREFILL_TOKENS: Final = 256
_SMOOTHING: Final = 0.1
# Reservations of one program.
_MOST_ROOMS: Final = 16
_LEARNED: Final = 4096


@dataclass(slots=True)
class PrefillPace:
    """Seconds per prompt token, learned from the engine's steps; 0 before the first step of
    prefill."""

    token_s: float = 0.0

    def note(self, tokens: int, sequences: int, duration_s: float) -> None:
        """Learn from a step that computed `tokens` tokens of `sequences` sequences."""
        if tokens < max(_PREFILL_TOKENS, 2 * sequences) or duration_s <= 0:
            return
        pace = duration_s / tokens
        self.token_s += (pace - self.token_s) * (_SMOOTHING if self.token_s else 1.0)


@dataclass(frozen=True, slots=True)
class Admission:
    """A waiting sequence that could be admitted. blocks: the free blocks that it takes. warm: most
    of its context is cached. max_hold_s: how much longer it may be deferred, seconds. chain: as in
    CacheReservations; needed if its program has reservations."""

    sequence: str
    program: str
    blocks: int
    warm: bool
    max_hold_s: float
    chain: Chain = ()


@dataclass(eq=False, slots=True)
class _Reservation:
    """Blocks reserved until an instant. chain: of the context that should be found again; empty
    once the reservation has ended."""

    program: str
    blocks: int
    until: float
    chain: Chain

    def rest(self, chain: Chain) -> int:
        """Return the blocks that stay reserved while a call with this chain runs: the common prefix
        is in use then. If that is most of the chain, the rest is not worth keeping, since it
        usually belongs to parallel calls that have joined."""
        common = _common(self.chain, chain)
        if not common:
            return self.blocks
        return 0 if 2 * common > len(self.chain) else min(self.blocks, len(self.chain) - common)


class CacheReservations:
    """Blocks of programs between two calls, each reserved until an instant.

    Each parallel thread of a program has a reservation. Contexts are distinguished by their chains
    of block hashes, because few clients name their threads. Equal hashes mean equal prefixes. The
    number of reservations per program is learned, since some contexts are never continued: it
    starts at one, grows by one each time that a call continues a context, up to 16, and falls by
    one each time that a reservation expires.
    """

    def __init__(self) -> None:
        self._reservations: dict[str, list[_Reservation]] = {}
        # The maximum per program if it is not one, for the programs that changed it last.
        self._most: OrderedDict[str, int] = OrderedDict()
        # A heap of ends, which includes reservations that ended early. The numbers break ties,
        # since reservations have no order.
        self._ends: list[tuple[float, int, _Reservation]] = []
        self._numbers = itertools.count()
        self._total = 0

    @property
    def blocks(self) -> int:
        """The blocks reserved for all programs."""
        return self._total

    @property
    def programs(self) -> int:
        """The programs with a reservation."""
        return len(self._reservations)

    def keep(self, program: str, blocks: int, until: float, chain: Chain) -> None:
        """A call has ended and left blocks that no other call uses: reserve them. A context without
        a full block cannot be found again and gets no reservation."""
        if blocks <= 0 or not chain:
            return
        rooms = self._reservations.setdefault(program, [])
        while len(rooms) >= self._most.get(program, 1):
            self._give_up(rooms.pop(0))
        room = _Reservation(program, blocks, until, chain)
        rooms.append(room)
        heapq.heappush(self._ends, (until, next(self._numbers), room))
        self._total += blocks

    def claim(self, program: str, chain: Chain) -> None:
        """The program's next call runs, with this chain."""
        rooms = self._reservations.get(program, ())
        for room in rooms:
            rest = room.rest(chain)
            self._total -= room.blocks - rest
            room.blocks = rest
            if not rest:
                self._learn(program, 1)
        self._tidy(program)

    def drop(self, program: str) -> None:
        """The program has ended."""
        self._most.pop(program, None)
        for room in self._reservations.pop(program, ()):
            self._give_up(room)

    def clear(self) -> None:
        """The cache was emptied."""
        self._reservations.clear()
        self._ends.clear()
        self._total = 0

    def expire(self, now: float) -> None:
        """End the expired reservations."""
        while self.next_end() <= now:
            room = self._ends[0][2]
            self._give_up(room)
            self._learn(room.program, -1)
            self._tidy(room.program)

    def next_end(self) -> float:
        """Return when the first reservation expires; infinite without reservations."""
        ends = self._ends
        while ends and not ends[0][2].blocks:
            heapq.heappop(ends)
        return ends[0][0] if ends else math.inf

    def of(self, program: str) -> int:
        """Return the blocks reserved for a program."""
        return sum(room.blocks for room in self._reservations.get(program, ()))

    def leave_enough(self, blocks: int, free: int) -> bool:
        """Whether calls that take this many free blocks together leave all reserved blocks, so that
        none has to be deferred."""
        return blocks + self._total <= free

    def held(self, asking: Sequence[Admission], free: int, running: int) -> list[str]:
        """Return the sequences to defer, from `asking`, best first: those that are not warm and
        would take blocks reserved for other programs. No sequence is deferred while the engine is
        idle, or beyond its max_hold_s."""
        held: list[str] = []
        kept = self._total
        left: dict[_Reservation, int] = {}
        for one in asking:
            rooms = self._reservations.get(one.program, ())
            others = kept - sum(left.get(room, room.blocks) for room in rooms)
            if (
                running > 0
                and others > 0
                and not one.warm
                and one.max_hold_s > 0
                and one.blocks > free - others
            ):
                held.append(one.sequence)
                continue
            free -= one.blocks
            for room in rooms:
                before = left.get(room, room.blocks)
                left[room] = min(before, room.rest(one.chain))
                kept -= before - left[room]
            running += 1
        return held

    def _give_up(self, room: _Reservation) -> None:
        self._total -= room.blocks
        # It stays in the heap until its end.
        room.blocks, room.chain = 0, ()

    def _learn(self, program: str, more: int) -> None:
        most = min(max(self._most.pop(program, 1) + more, 1), _MOST_ROOMS)
        if most > 1:
            self._most[program] = most
            if len(self._most) > _LEARNED:
                self._most.popitem(last=False)

    def _tidy(self, program: str) -> None:
        left = [room for room in self._reservations.get(program, ()) if room.blocks]
        if left:
            self._reservations[program] = left
        else:
            self._reservations.pop(program, None)


def _common(one: Chain, other: Chain) -> int:
    """Return the length of the common prefix of two chains."""
    at_most = min(len(one), len(other))
    return bisect_left(range(at_most), True, key=lambda link: one[link] != other[link])
