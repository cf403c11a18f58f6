"""Room kept in the cache for programs between two of their calls, and who waits for it. Pure.

A program that calls again soon finds its context where it left it, if nobody was let in meanwhile
who needed its blocks. To leave b of n blocks unused for t seconds costs b/n of what the engine can
do in t; to compute them again costs b/n of a prefill of the whole cache. So it pays to wait for a
program about as long as that prefill takes, however long its context is: the break-even rule of
renting or buying, at most twice as dear as knowing when the program will be back.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

# A step that computes so many tokens is one of prefill: its time is that of its arithmetic.
_PREFILL_TOKENS: Final = 256
_SMOOTHING: Final = 0.1


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
class Asking:
    """A waiting sequence that would be admitted. blocks: free ones that it takes. warm: most of
    its context is cached. patience_s: how much longer it may be held back, seconds."""

    sequence: str
    program: str
    blocks: int
    warm: bool
    patience_s: float


@dataclass(slots=True)
class KeptRooms:
    """Blocks of programs that are between two calls, each until an instant."""

    _rooms: dict[str, tuple[int, float]] = field(default_factory=dict)
    # A heap of ends, also of rooms that were given up before their time.
    _ends: list[tuple[float, str]] = field(default_factory=list)
    _total: int = 0

    @property
    def blocks(self) -> int:
        """Kept for all programs together."""
        return self._total

    def keep(self, program: str, blocks: int, until: float) -> None:
        """A program's call has ended and left so many blocks that nobody else uses."""
        self.drop(program)
        if blocks > 0:
            self._rooms[program] = (blocks, until)
            heapq.heappush(self._ends, (until, program))
            self._total += blocks

    def drop(self, program: str) -> None:
        """The program's next call runs, or the program has ended."""
        blocks, _ = self._rooms.pop(program, (0, 0.0))
        self._total -= blocks

    def clear(self) -> None:
        """The cache was emptied."""
        self._rooms.clear()
        self._ends.clear()
        self._total = 0

    def expire(self, now: float) -> None:
        """Forget the rooms whose time is over."""
        while self.next_end() <= now:
            self.drop(self._ends[0][1])

    def next_end(self) -> float:
        """When the first room's time is over; infinite if there is none."""
        ends = self._ends
        while ends:
            until, program = ends[0]
            room = self._rooms.get(program)
            if room is not None and room[1] == until:
                return until
            heapq.heappop(ends)
        return math.inf

    def of(self, program: str) -> int:
        """Blocks kept for one program."""
        return self._rooms.get(program, (0, 0.0))[0]

    def leave_enough(self, blocks: int, free: int) -> bool:
        """Whether calls that take so many of the free blocks together leave all that is kept, so
        that none of them has to wait."""
        return blocks + self._total <= free

    def held(self, asking: Sequence[Asking], free: int, running: int) -> list[str]:
        """Which of these, the best first, are to wait: those that are not warm and would take what
        is kept for other programs. Nobody waits while nothing runs, nor beyond its patience."""
        held: list[str] = []
        kept = self._total
        for one in asking:
            own = self.of(one.program)
            others = kept - own
            if (
                running > 0
                and others > 0
                and not one.warm
                and one.patience_s > 0
                and one.blocks > free - others
            ):
                held.append(one.sequence)
                continue
            free -= one.blocks
            kept -= own
            running += 1
        return held
