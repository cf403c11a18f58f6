"""Which KV blocks are pinned, by which programs and until when. Pure: instants are handed in.

A block may be pinned by several programs and counts once. What is pinned is bounded: the oldest pin
yields to a new one, so that pins can fill their share but never block one another.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Final

# Ends of pins that were renewed or released: so many more than pins are kept before a clean-up.
_STALE_ENDS: Final = 64


@dataclass(slots=True)
class _Pin:
    """until: when it ends. blocks: ids, in the order of the program's context."""

    until: float
    blocks: dict[int, None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EndedPin:
    """A pin that was not released but ended. blocks: those that nobody pins any more, in the order
    of the program's context."""

    program: str
    blocks: list[int]


class Pins:
    """Pins of programs on blocks, by their ids. At most `limit` blocks are pinned at any time."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        # The oldest first.
        self._pins: OrderedDict[str, _Pin] = OrderedDict()
        self._owners: dict[int, set[str]] = {}
        self._ends: list[tuple[float, str]] = []

    def __len__(self) -> int:
        return len(self._pins)

    def __contains__(self, program: str) -> bool:
        return program in self._pins

    @property
    def blocks(self) -> Set[int]:
        """All blocks that are pinned."""
        return self._owners.keys()

    def holds(self, block: int) -> bool:
        """Whether a block is pinned."""
        return block in self._owners

    def retain(self, program: str, until: float) -> None:
        """Begin or renew a program's pin, without blocks of its own yet. It is the newest now."""
        pin = self._pins.setdefault(program, _Pin(until))
        pin.until = until
        self._pins.move_to_end(program)
        heappush(self._ends, (until, program))
        if len(self._ends) > 2 * len(self._pins) + _STALE_ENDS:
            self._ends = [(pin.until, name) for name, pin in self._pins.items()]
            heapify(self._ends)

    def extend(self, program: str, blocks: Sequence[int]) -> tuple[list[int], list[EndedPin]]:
        """Put blocks under a program's pin, first to last of its context, as many of the first as
        the limit allows. Older pins yield where room is needed, newer ones do not. Returns those
        that nobody had pinned, and the pins that have yielded. KeyError if the program has no pin.
        """
        pin = self._pins[program]
        fresh: list[int] = []
        for block in blocks:
            if block in self._owners:
                self._own(program, pin, block)
            else:
                fresh.append(block)
        yielded = []
        for other, older in list(self._pins.items()):
            if other == program or len(self._owners) + len(fresh) <= self.limit:
                break
            if older.blocks:
                yielded.append(EndedPin(other, self.release(other)))
        added = fresh[: self.limit - len(self._owners)]
        for block in added:
            self._own(program, pin, block)
        return added, yielded

    def loosen(self, program: str, blocks: Sequence[int]) -> list[int]:
        """Take blocks out from under a program's pin. Returns those that nobody pins any more."""
        return [block for block in blocks if self._disown(program, self._pins[program], block)]

    def of(self, program: str) -> list[int]:
        """The blocks under a program's pin, in the order of its context."""
        pin = self._pins.get(program)
        return [] if pin is None else list(pin.blocks)

    def release(self, program: str) -> list[int]:
        """End a program's pin, if it has one. Returns the blocks that nobody pins any more, in the
        order of its context."""
        unpinned = self.loosen(program, self.of(program))
        self._pins.pop(program, None)
        return unpinned

    def expire(self, now: float) -> list[EndedPin]:
        """End the pins whose time is over."""
        ended = []
        while self._ends and self._ends[0][0] <= now:
            _, program = heappop(self._ends)
            pin = self._pins.get(program)
            if pin is not None and pin.until <= now:
                ended.append(EndedPin(program, self.release(program)))
        return ended

    def drop(self, block: int) -> None:
        """What a block held is gone, and with it all pins on it."""
        for program in self._owners.pop(block, ()):
            del self._pins[program].blocks[block]

    def clear(self) -> None:
        """End all pins."""
        self._pins.clear()
        self._owners.clear()
        self._ends.clear()

    def violations(self) -> list[str]:
        """What is inconsistent, in words."""
        found = []
        listed = {(program, block) for program, pin in self._pins.items() for block in pin.blocks}
        if listed != {(p, block) for block, owners in self._owners.items() for p in owners}:
            found.append("pins and the owners of blocks differ")
        if len(self._owners) > self.limit:
            found.append(f"{len(self._owners)} blocks are pinned, at most {self.limit} may be")
        if not {(pin.until, program) for program, pin in self._pins.items()} <= set(self._ends):
            found.append("a pin would never end")
        return found

    def _disown(self, program: str, pin: _Pin, block: int) -> bool:
        """Whether nobody pins the block any more."""
        del pin.blocks[block]
        owners = self._owners[block]
        owners.discard(program)
        if not owners:
            del self._owners[block]
        return not owners

    def _own(self, program: str, pin: _Pin, block: int) -> None:
        self._owners.setdefault(block, set()).add(program)
        pin.blocks[block] = None
