"""Working sets: the programs whose contexts an engine keeps in its cache between their calls. Pure.

If the working sets of all programs exceed memory, each call finds its context evicted, in whatever
order calls run (thrashing; Denning, 1968). Then some programs have to wait as a whole. Residents
are the programs whose sets fit together, the oldest first; the calls of the others use the memory
that is left.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

# Ended programs from which growth is learned, and gaps between calls.
_LEARNED: Final = 32
_GAPS: Final = 64
_FEWEST_GAPS: Final = 8
# Programs that are tried after the first one that does not fit.
_TRIED: Final = 16
_MOST_PROGRAMS: Final = 4096


@dataclass(slots=True)
class WorkingSet:
    """The memory of one program, in blocks. first: the context of its first call. largest: its
    largest context so far. calls: its calls in the engine. idle_since: when its last call ended.
    away: its gap outlasted the limit, so it is no candidate until its next call."""

    arrival_s: float
    tenant: str
    weight: float
    first: int
    largest: int
    calls: int = 0
    idle_since: float = 0.0
    away: bool = False


class WorkingSets:
    """The programs of one engine.

    blocks: for residents. residents: their names. left: what their predicted sets leave of
    `blocks`, at least 0.
    """

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks
        self.residents: set[str] = set()
        self.left = blocks
        self._sets: dict[str, WorkingSet] = {}
        self._growth: deque[int] = deque(maxlen=_LEARNED)
        self._gaps: deque[float] = deque(maxlen=_GAPS)
        self._changed = False

    def arrive(
        self,
        program: str,
        blocks: int,
        now: float,
        arrival_s: float,
        tenant: str = "",
        weight: float = 1.0,
    ) -> None:
        """A call of a program has arrived. blocks: of its context. arrival_s: of the program."""
        known = self._sets.get(program)
        if known is None:
            known = WorkingSet(arrival_s, tenant, weight, blocks, blocks)
            self._sets[program] = known
            self._changed = True
        elif known.calls <= 0:
            self._gaps.append(now - known.idle_since)
            self._changed |= known.away
            known.away = False
        known.calls += 1
        self._grow(known, blocks)

    def leave(self, program: str, blocks: int, now: float) -> None:
        """A call of a program has ended with a context of this many blocks."""
        known = self._sets.get(program)
        if known is None:
            return
        known.calls -= 1
        known.idle_since = now
        self._grow(known, blocks)
        while len(self._sets) > _MOST_PROGRAMS:
            self.end(min(self._sets, key=lambda name: (self._sets[name].calls, known.idle_since)))

    def end(self, program: str) -> None:
        """A program will not call again."""
        known = self._sets.pop(program, None)
        if known is not None:
            self._changed = True
            if not known.away:
                self._growth.append(known.largest - known.first)

    def expire(self, before: float) -> None:
        """Programs without a call since before this instant are no candidates until they call
        again."""
        for program in self.residents:
            known = self._sets.get(program)
            if known is not None and known.calls <= 0 and known.idle_since <= before:
                self._growth.append(known.largest - known.first)
                known.away = self._changed = True

    def usual_gap_s(self) -> float | None:
        """Return how long nine of ten recent gaps between two calls of a program lasted at most,
        seconds; None if few are known."""
        if len(self._gaps) < _FEWEST_GAPS:
            return None
        return sorted(self._gaps)[len(self._gaps) * 9 // 10]

    def next_idle(self) -> float | None:
        """Return since when the resident that has waited longest is without a call."""
        known = map(self._sets.__getitem__, self.residents)
        return min((one.idle_since for one in known if one.calls <= 0), default=None)

    def choose(self) -> tuple[set[str], set[str]]:
        """Choose the residents again. Returns the programs that became residents, and those that
        are residents no more.

        Tenants take turns, the one with the fewest resident blocks per weight first. Inside a
        tenant the oldest program comes first; one that does not fit is skipped.
        """
        if not self._changed:
            return set(), set()
        self._changed = False
        queues: dict[str, list[tuple[float, str]]] = {}
        for name, known in self._sets.items():
            if not known.away:
                queues.setdefault(known.tenant, []).append((known.arrival_s, name))
        for queue in queues.values():
            queue.sort(reverse=True)
        held = dict.fromkeys(queues, 0.0)
        chosen: set[str] = set()
        left, misfits = self.blocks, 0
        while queues and misfits < _TRIED:
            tenant = min(queues, key=lambda name: (held[name], name))
            _, name = queues[tenant].pop()
            if not queues[tenant]:
                del queues[tenant]
            known = self._sets[name]
            wanted = self._predicted(known)
            if wanted > left:
                misfits += 1
                continue
            left -= wanted
            held[tenant] += wanted / known.weight
            chosen.add(name)
        came, gone = chosen - self.residents, self.residents - chosen
        self.residents, self.left = chosen, left
        return came, gone

    def clear(self) -> None:
        """The cache was emptied: forget programs without a call, and choose all residents anew."""
        for name in [name for name, known in self._sets.items() if known.calls <= 0]:
            self.end(name)
        self.residents, self._changed = set(), True

    def _grow(self, known: WorkingSet, blocks: int) -> None:
        if blocks > known.largest:
            # Only growth beyond the prediction changes the choice.
            self._changed |= blocks > self._predicted(known)
            known.largest = blocks

    def _predicted(self, known: WorkingSet) -> int:
        growth = sum(self._growth) // len(self._growth) if self._growth else 0
        return max(known.first + growth, known.largest)
