"""Lineage in this process's memory: bounded, the longest unused goes first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gateway.programs.lineage.marks import Entry, Known, Mark, merged
from gateway.programs.lineage.store import KEEP_S, MAX_MARKS

# About 150 bytes each.
DEFAULT_LIMIT: Final = 400_000


class _Shelf:
    """One tenant's marks in two halves. What is used moves to the young one; when that is full or
    has aged, it becomes the old one, and what nobody used in the meantime is gone at once."""

    __slots__ = ("folded", "old", "old_folded", "since_s", "young")

    def __init__(self, now_s: float) -> None:
        self.young: dict[int, tuple[Mark, ...]] = {}
        self.old: dict[int, tuple[Mark, ...]] = {}
        self.folded: dict[str, str] = {}
        self.old_folded: dict[str, str] = {}
        self.since_s = now_s

    def turn(self, now_s: float) -> None:
        self.old, self.young = self.young, {}
        self.old_folded, self.folded = self.folded, {}
        self.since_s = now_s

    def size(self) -> int:
        return len(self.young) + len(self.old) + len(self.folded) + len(self.old_folded)

    def find(self, fingerprint: int) -> tuple[Mark, ...] | None:
        found = self.young.get(fingerprint)
        if found is None and (found := self.old.pop(fingerprint, None)) is not None:
            self.young[fingerprint] = found
        return found

    def root(self, program: str) -> str:
        """What the program is part of, in the end; itself if of none."""
        seen = {program}
        while True:
            into = self.folded.get(program)
            if into is None and (into := self.old_folded.pop(program, None)) is not None:
                self.folded[program] = into
            if into is None or into in seen:
                return program
            seen.add(into)
            program = into


class MemoryLineage:
    """See LineageStore. limit: fingerprints in all; a tenant that floods it pushes out his own.
    keep_s: what is not used goes after once to twice as many seconds."""

    def __init__(self, limit: int = DEFAULT_LIMIT, keep_s: float = KEEP_S) -> None:
        self._limit = limit
        self._keep_s = keep_s
        self._shelves: dict[str, _Shelf] = {}
        self._held = 0
        self._sweep_s = 0.0

    async def get_many(self, tenant: str, fingerprints: Sequence[int], now_s: float) -> Known:
        """See LineageStore."""
        if now_s - self._sweep_s >= self._keep_s / 8:
            self._sweep(now_s)
        shelf = self._shelves.get(tenant)
        if shelf is None:
            return Known({}, {})
        young, old = shelf.young, shelf.old
        marks = {}
        for fingerprint in fingerprints:
            if fingerprint in young:
                marks[fingerprint] = young[fingerprint]
            elif fingerprint in old:
                marks[fingerprint] = young[fingerprint] = old.pop(fingerprint)
        folded = {}
        if shelf.folded or shelf.old_folded:
            for program in {mark.program for found in marks.values() for mark in found}:
                if (root := shelf.root(program)) != program:
                    folded[program] = root
        return Known(marks, folded)

    async def put(
        self,
        tenant: str,
        entries: Sequence[Entry],
        folds: Sequence[tuple[str, str]],
        now_s: float,
    ) -> None:
        """See LineageStore."""
        shelf = self._shelves.get(tenant)
        if shelf is None:
            shelf = self._shelves[tenant] = _Shelf(now_s)
        before = shelf.size()
        for fingerprint, mark in entries:
            there = shelf.find(fingerprint)
            marks = (mark,) if there is None else tuple(merged((mark, *there))[:MAX_MARKS])
            shelf.young[fingerprint] = marks
        for program, into in folds:
            shelf.old_folded.pop(program, None)
            shelf.folded.pop(program, None)
            if into:
                shelf.folded[program] = into
        self._held += shelf.size() - before
        self._bound(now_s)

    async def aclose(self) -> None:
        """See LineageStore."""

    @property
    def held(self) -> int:
        """Fingerprints and folds that are remembered."""
        return self._held

    def root(self, tenant: str, program: str) -> str:
        """What a program is part of by now; itself if of none."""
        shelf = self._shelves.get(tenant)
        return program if shelf is None else shelf.root(program)

    def _turn(self, shelf: _Shelf, now_s: float) -> None:
        before = shelf.size()
        shelf.turn(now_s)
        self._held += shelf.size() - before

    def _sweep(self, now_s: float) -> None:
        """Turn the shelves that are due, and take away empty ones."""
        self._sweep_s = now_s
        for tenant, shelf in list(self._shelves.items()):
            if now_s - shelf.since_s >= self._keep_s:
                self._turn(shelf, now_s)
                if not shelf.size():
                    del self._shelves[tenant]

    def _bound(self, now_s: float) -> None:
        while self._held > self._limit:
            self._turn(max(self._shelves.values(), key=_Shelf.size), now_s)
