"""The store of fingerprints in this process's memory. Bounded: the least recently used entries are
evicted. Stored data is a hint: a call without matches starts a new program.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from weft_gateway.programs.lineage.marks import LASTING, Entry, Known, Mark

# Maximum marks per fingerprint; the newest are kept.
MAX_MARKS: Final = 16
# Lifetime of unused entries, seconds.
KEEP_S: Final = 3600.0
# About 320 bytes each: 88 MB in total.
DEFAULT_LIMIT: Final = 275_000
# Fraction evicted at once when full, because finding the largest tenant scans all tenants.
_ROOM: Final = 0.02


class _Shelf:
    """One tenant's entries, least recently used first. folded: a program to the program it is part
    of and the time of that entry.
    """

    __slots__ = ("folded", "marks")

    def __init__(self) -> None:
        self.marks: OrderedDict[int, tuple[Mark, ...]] = OrderedDict()
        self.folded: OrderedDict[str, tuple[str, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self.marks) + len(self.folded)

    def root(self, program: str) -> str:
        """Return the program that this one is finally part of, or the program itself."""
        seen = {program}
        while program in self.folded:
            self.folded.move_to_end(program)
            program, _ = self.folded[program]
            if program in seen:
                break
            seen.add(program)
        return program

    def drop(self, count: int) -> None:
        """Evict `count` entries."""
        for _ in range(min(count, len(self))):
            if len(self.folded) > len(self.marks):
                self.folded.popitem(last=False)
            else:
                self.marks.popitem(last=False)

    def drop_older(self, before_s: float) -> None:
        """Evict the least recently used entries that were added before `before_s`."""
        marks, folded = self.marks, self.folded
        while marks and next(iter(marks.values()))[0].at_s < before_s:
            marks.popitem(last=False)
        while folded and next(iter(folded.values()))[1] < before_s:
            folded.popitem(last=False)


class MemoryLineage:
    """Marks by tenant and fingerprint. limit: fingerprints and folds in total; a tenant that floods
    the store evicts its own entries. keep_s: lifetime of an unused entry, seconds.
    """

    def __init__(self, limit: int = DEFAULT_LIMIT, keep_s: float = KEEP_S) -> None:
        self._limit = limit
        self._keep_s = keep_s
        self._shelves: dict[str, _Shelf] = {}
        self._held = 0
        self._swept_s = 0.0

    async def get_many(self, tenant: str, fingerprints: Sequence[int], now_s: float) -> Known:
        """Return the marks and folds of these fingerprints, in one round trip. Unknown ones are
        omitted.
        """
        if now_s - self._swept_s >= self._keep_s / 8:
            self._sweep(now_s)
        shelf = self._shelves.get(tenant)
        if shelf is None:
            return Known({}, {})
        kept = shelf.marks
        marks = {f: kept[f] for f in fingerprints if f in kept}
        for fingerprint in marks:
            kept.move_to_end(fingerprint)
        folded: dict[str, str] = {}
        if shelf.folded:
            for found in marks.values():
                for mark in found:
                    program = mark.program
                    if program in shelf.folded and program not in folded:
                        root = shelf.root(program)
                        if root != program:
                            folded[program] = root
        return Known(marks, folded)

    async def put(
        self,
        tenant: str,
        entries: Sequence[Entry],
        folds: Sequence[tuple[str, str]],
        now_s: float,
    ) -> None:
        """Add marks and folds, in one round trip. A mark merges with an earlier one of its thread.
        folds: a program and the program it is part of, "" to unfold it.
        """
        shelf = self._shelves.get(tenant)
        if shelf is None:
            shelf = self._shelves[tenant] = _Shelf()
        marks = shelf.marks
        before = len(shelf)
        for fingerprint, mark in entries:
            there = marks.pop(fingerprint, None)
            marks[fingerprint] = (mark,) if there is None else _added(mark, there)
        for program, into in folds:
            shelf.folded.pop(program, None)
            if into:
                shelf.folded[program] = into, now_s
        self._held += len(shelf) - before
        if self._held > self._limit:
            self._bound()

    @property
    def held(self) -> int:
        """Number of stored fingerprints and folds."""
        return self._held

    def root(self, tenant: str, program: str) -> str:
        """Return the program that this one is part of now, or the program itself."""
        shelf = self._shelves.get(tenant)
        return program if shelf is None else shelf.root(program)

    def _bound(self) -> None:
        while (surplus := self._held - int(self._limit * (1 - _ROOM))) > 0:
            shelf = max(self._shelves.values(), key=len)
            before = len(shelf)
            shelf.drop(surplus)
            self._held += len(shelf) - before

    def _sweep(self, now_s: float) -> None:
        self._swept_s = now_s
        for tenant, shelf in list(self._shelves.items()):
            before = len(shelf)
            shelf.drop_older(now_s - self._keep_s)
            self._held += len(shelf) - before
            if not shelf:
                del self._shelves[tenant]


def _added(mark: Mark, there: tuple[Mark, ...]) -> tuple[Mark, ...]:
    """Add a mark before existing ones, as `merged` does. Most threads have no mark yet."""
    program, thread, tail = mark.program, mark.thread, mark.tail
    for other in there:
        if other.program == program and other.thread == thread and other.tail == tail:
            kept = mark._replace(state=mark.state | other.state & LASTING)
            return (kept, *[one for one in there if one is not other])
    return (mark, *there[: MAX_MARKS - 1])
