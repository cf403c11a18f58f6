"""The programs whose blocks are remembered, and how many of them. Pure."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

# Programs that are remembered: so many, and no more blocks of theirs than four caches hold.
KEPT_PROGRAMS: Final = 4096
_KEPT_CACHES: Final = 4


@dataclass(slots=True)
class Program:
    """A program: its blocks with their contents, in the order of its context, and what was asked
    for it. reach: its pin is for so many of a context's first tokens, None for all. ended: why its
    last pin ended, until somebody is told."""

    blocks: dict[int, Any] = field(default_factory=dict)
    tenant: str = ""
    priority: int = 0
    reach: int | None = None
    ended: str = ""


class ProgramBlocks:
    """Programs by name, the one that was idle longest first. total: blocks in the cache."""

    def __init__(self, total: int) -> None:
        self._most_blocks = _KEPT_CACHES * total
        self._programs: OrderedDict[str, Program] = OrderedDict()
        self.blocks = 0

    def get(self, name: str) -> Program | None:
        """A program, if it is remembered."""
        return self._programs.get(name)

    def at_hand(self, name: str) -> Program:
        """A program, new or known; the most recent one now."""
        known = self._programs.get(name)
        if known is None:
            known = self._programs[name] = Program()
        self._programs.move_to_end(name)
        return known

    def own(self, known: Program, numbers: list[int], contents: list[Any]) -> None:
        """These blocks are of a program, in this order; those with new contents come last."""
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
        """These blocks hold something else by now."""
        for number in numbers:
            del known.blocks[number]
        self.blocks -= len(numbers)

    def forget(self, name: str) -> None:
        """A program is not remembered any more."""
        known = self._programs.pop(name, None)
        if known is not None:
            self.blocks -= len(known.blocks)

    def clear(self) -> None:
        """No program is remembered any more."""
        self._programs.clear()
        self.blocks = 0

    def overdue(self) -> Iterator[tuple[str, bool]]:
        """Programs to forget, until no more are too many: of the tenant that has most, the one that
        was idle longest, never the one at hand. So the programs of one tenant do not push out those
        of another. True with each: it was idle for so many programs that it counts as ended;
        False: its contexts are long, no more."""
        by_count = len(self._programs) > KEPT_PROGRAMS
        if not by_count and self.blocks <= self._most_blocks:
            return
        mine: Counter[str] = Counter()
        for known in self._programs.values():
            mine[known.tenant] += 1 if by_count else len(known.blocks)
        # A few more than needed, so that they are seldom counted.
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
        """What is inconsistent, in words."""
        counted = sum(len(known.blocks) for known in self._programs.values())
        return ["blocks of programs are miscounted"] if counted != self.blocks else []
