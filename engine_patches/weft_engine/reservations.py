"""Cache reservations for programs between two calls, and the calls that they defer. Pure.

A program that calls again soon finds its context in the cache if no other call took its blocks.
Leaving b of n blocks unused for t seconds costs b/n of what the engine can do in t; computing them
again costs b/n of a prefill of the whole cache. So it pays to wait for a program about as long as
that prefill takes, whatever the length of its context: the break-even rule of renting or buying,
which costs at most twice as much as knowing when the program returns.
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

# A hash for each full block of a context, which covers the block and all blocks before it.
Chain = Sequence[Any]

# A step that computes so many tokens is one of prefill: its time is that of its arithmetic.
_PREFILL_TOKENS: Final = 256
_SMOOTHING: Final = 0.1
# Of one program.
_MOST_ROOMS: Final = 16
_LEARNED: Final = 4096


@dataclass(slots=True)
class PrefillPace:
    """Seconds that the engine takes for a token of a prompt, from its steps; 0 as long as there
    was no step of prefill."""

    token_s: float = 0.0

    def note(self, tokens: int, sequences: int, duration_s: float) -> None:
        """A step computed so many tokens of so many sequences in so many seconds."""
        if tokens < max(_PREFILL_TOKENS, 2 * sequences) or duration_s <= 0:
            return
        pace = duration_s / tokens
        self.token_s += (pace - self.token_s) * (_SMOOTHING if self.token_s else 1.0)


@dataclass(frozen=True, slots=True)
class Admission:
    """A waiting sequence that would be admitted. blocks: free ones that it takes. warm: most of
    its context is cached. patience_s: how much longer it may be held back, seconds. chain: as in
    CacheReservations; needed where its program has rooms."""

    sequence: str
    program: str
    blocks: int
    warm: bool
    max_hold_s: float
    chain: Chain = ()


@dataclass(eq=False, slots=True)
class _Reservation:
    """Kept until an instant. chain: of the context that is to find it again; empty once it is given
    up."""

    program: str
    blocks: int
    until: float
    chain: Chain

    def rest(self, chain: Chain) -> int:
        """Blocks that are still kept when a call with this chain runs: what both have in common is
        in use then. Where that is most of it, the rest is not worth keeping, and mostly nobody's:
        calls that went on side by side have joined."""
        common = _common(self.chain, chain)
        if not common:
            return self.blocks
        return 0 if 2 * common > len(self.chain) else min(self.blocks, len(self.chain) - common)


class CacheReservations:
    """Blocks of programs that are between two calls, each room until an instant.

    Threads side by side have a room each. Contexts are told apart by their chains: a hash for each
    full block, of it and of all before it, so that equal ones mean equal beginnings. What a thread
    calls itself is not asked: few clients say it. How many a program has is learned, since there
    are programs whose contexts nobody goes on with: the last one at first, one more each time that
    a call goes on with one, at most 16, and one less each time that nobody came.
    """

    def __init__(self) -> None:
        self._reservations: dict[str, list[_Reservation]] = {}
        # Rooms that a program may have, where that is not one; of the programs that learned last.
        self._most: OrderedDict[str, int] = OrderedDict()
        # A heap of ends, also of rooms that were given up before their time. The numbers are there
        # since rooms have no order.
        self._ends: list[tuple[float, int, _Reservation]] = []
        self._numbers = itertools.count()
        self._total = 0

    @property
    def blocks(self) -> int:
        """Kept for all programs together."""
        return self._total

    def keep(self, program: str, blocks: int, until: float, chain: Chain) -> None:
        """A program's call has ended and left so many blocks that nobody else uses. A context
        without a full block is not found again, and nothing is kept of it."""
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
        """Forget the rooms whose time is over."""
        while self.next_end() <= now:
            room = self._ends[0][2]
            self._give_up(room)
            self._learn(room.program, -1)
            self._tidy(room.program)

    def next_end(self) -> float:
        """When the first room's time is over; infinite if there is none."""
        ends = self._ends
        while ends and not ends[0][2].blocks:
            heapq.heappop(ends)
        return ends[0][0] if ends else math.inf

    def of(self, program: str) -> int:
        """Blocks kept for one program."""
        return sum(room.blocks for room in self._reservations.get(program, ()))

    def leave_enough(self, blocks: int, free: int) -> bool:
        """Whether calls that take so many of the free blocks together leave all that is kept, so
        that none of them has to wait."""
        return blocks + self._total <= free

    def held(self, asking: Sequence[Admission], free: int, running: int) -> list[str]:
        """Which of these, the best first, are to wait: those that are not warm and would take what
        is kept for other programs. Nobody waits while nothing runs, nor beyond its patience."""
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
        # The heap still has it, until its time is over.
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
    """How many of the first links two chains have in common."""
    at_most = min(len(one), len(other))
    return bisect_left(range(at_most), True, key=lambda link: one[link] != other[link])
