"""A bounded record of programs and their blocks. Pure."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from weft_engine.block_metadata import HIGHEST_PRIORITY

# Limits of the record: the number of programs, and the number of their blocks in caches.
KEPT_PROGRAMS: Final = 4096
_KEPT_CACHES: Final = 4


@dataclass(slots=True)
class Program:
    """A program's blocks with their contents, in the order of its context, and its settings. reach:
    its pin covers this many of a context's first tokens; None for all. ended: why its last pin
    ended, until that is reported."""

    blocks: dict[int, Any] = field(default_factory=dict)
    tenant: str = ""
    priority: int = 0
    reach: int | None = None
    ended: str = ""
    resident: bool = False

    @property
    def standing(self) -> int:
        """The priority of its blocks."""
        return HIGHEST_PRIORITY if self.resident else self.priority


class ProgramBlocks:
    """Programs by name, longest idle first. total: blocks in the cache."""

    def __init__(self, total: int) -> None:
        self._most_blocks = _KEPT_CACHES * total
        self._programs: OrderedDict[str, Program] = OrderedDict()
        self.blocks = 0

    def get(self, name: str) -> Program | None:
        """Return a program; None if it is unknown."""
        return self._programs.get(name)

    def at_hand(self, name: str) -> Program:
        """Return a program, created if necessary, and mark it as the most recent one."""
        known = self._programs.get(name)
        if known is None:
            known = self._programs[name] = Program()
        self._programs.move_to_end(name)
        return known

    def own(self, known: Program, numbers: list[int], contents: list[Any]) -> None:
        """Record blocks of a program in this order. Blocks with new content come last."""
        held = known.blocks
        before = len(held)
        known_as = list(map(held.get, numbers))
        if known_as != contents:
            for number, was, content in zip(numbers, known_as, contents, strict=True):
                if was is not None and was != content:
                    del held[number]
            held.update(zip(numbers, contents, strict=True))
            self.blocks += len(held) - before

    def lose(self, known: Program, numbers: Sequence[int]) -> None:
        """Remove blocks that hold other content now."""
        for number in numbers:
            del known.blocks[number]
        self.blocks -= len(numbers)

    def forget(self, name: str) -> None:
        """Remove a program."""
        known = self._programs.pop(name, None)
        if known is not None:
            self.blocks -= len(known.blocks)

    def clear(self) -> None:
        """Remove all programs."""
        self._programs.clear()
        self.blocks = 0

    def overdue(self) -> Iterator[tuple[str, bool]]:
        """Yield programs to remove until the limits are met: of the tenant that has the most, the
        one that was idle longest, and never the most recent program. So one tenant's programs do
        not evict another's. The flag is True if there were too many programs, so that this one
        counts as ended; False if only its contexts are long."""
        by_count = len(self._programs) > KEPT_PROGRAMS
        if not by_count and self.blocks <= self._most_blocks:
            return
        mine: Counter[str] = Counter()
        for known in self._programs.values():
            mine[known.tenant] += 1 if by_count else len(known.blocks)
        # Remove a few more than necessary, so that this count is rare.
        programs, blocks = KEPT_PROGRAMS - KEPT_PROGRAMS // 16, self._most_blocks * 15 // 16
        newest = next(reversed(self._programs))
        for name in list(self._programs):
            known = self._programs[name]
            if (len(self._programs) <= programs) if by_count else (self.blocks <= blocks):
                return
            if name != newest and known.tenant == max(mine, key=mine.__getitem__):
                mine[known.tenant] -= 1 if by_count else len(known.blocks)
                yield name, by_count

    def violations(self) -> list[str]:
        """Return inconsistencies in words."""
        counted = sum(len(known.blocks) for known in self._programs.values())
        return ["blocks of programs are miscounted"] if counted != self.blocks else []
