"""When the reuse priorities of programs end. Pure: instants are handed in.

The engine ends them, not the gateway that asked for them: that gateway may be gone by then.
"""

from __future__ import annotations

from collections import OrderedDict
from heapq import heapify, heappop, heappush
from typing import Final

MOST: Final = 4096
# Entries of priorities that were given anew or taken back: so many more than programs are kept
# before a clean-up.
_STALE: Final = 64


class Endings:
    """Programs and the instants at which their priorities end, at most `most` of them."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        # The one told longest ago first.
        self._until: OrderedDict[str, float] = OrderedDict()
        self._heap: list[tuple[float, str]] = []

    def __len__(self) -> int:
        return len(self._until)

    def set_end(self, program: str, until: float) -> list[str]:
        """A program's priority ends at `until`, whatever was told before. Returns the programs
        whose priority ends now, to bound their number: those told longest ago."""
        self._until[program] = until
        self._until.move_to_end(program)
        heappush(self._heap, (until, program))
        over = []
        while len(self._until) > self._most:
            over.append(self._until.popitem(last=False)[0])
        if len(self._heap) > 2 * len(self._until) + _STALE:
            self._heap = [(instant, name) for name, instant in self._until.items()]
            heapify(self._heap)
        return over

    def drop(self, program: str) -> None:
        """The program's priority has no end any more, or is gone."""
        self._until.pop(program, None)

    def due(self, now: float) -> list[str]:
        """The programs whose priority has ended by `now`; told once."""
        ended = []
        while self._heap and self._heap[0][0] <= now:
            until, program = heappop(self._heap)
            if self._until.get(program) == until:
                del self._until[program]
                ended.append(program)
        return ended
