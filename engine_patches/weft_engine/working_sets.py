"""Working sets: the programs whose contexts an engine keeps in its cache between their calls. Pure.

If the working sets of all programs exceed memory, each call finds its context evicted, in whatever
order calls run (thrashing; Denning, 1968). Then some programs have to wait as a whole. Residents
are programs whose sets fit together. They keep their places; free places go to the programs of the
lowest level, the oldest first. The calls of the others use the memory that is left.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from dataclasses import dataclass
from heapq import nsmallest
from typing import Final

from weft_engine.forecast import ServiceForecast

# Ended programs from which growth is learned, and gaps between calls.
_LEARNED: Final = 32
_GAPS: Final = 64
_FEWEST_GAPS: Final = 8
# Of the first gaps, the share after which a program calls again, below which it is not waited for.
_RETURNING: Final = 0.5
# The share of the predicted growth that is reserved: programs that end soon and programs that have
# just begun do not need all of it at one time.
_GROWTH: Final = 0.5
# Programs that are tried after the first one that does not fit.
_TRIED: Final = 16
# Above this number, this many programs without a call are forgotten.
_MOST_PROGRAMS: Final = 4096
_FORGOTTEN: Final = 512


@dataclass(slots=True)
class WorkingSet:
    """The memory of one program, in blocks. first: the context of its first call. largest: its
    largest context so far. calls: its calls in the engine. idle_since: when its last call ended.
    made: its calls so far. reserved: its predicted size while it is resident, otherwise 0.
    away: its gap outlasted the limit, or its first gap has begun and few
    programs return, so it is no candidate until its next call. service_s: attained so far."""

    arrival_s: float
    tenant: str
    weight: float
    first: int
    largest: int
    calls: int = 0
    idle_since: float = 0.0
    made: int = 0
    reserved: int = 0
    away: bool = False
    service_s: float = 0.0


class WorkingSets:
    """The programs of one engine.

    blocks: for residents. residents: their names. left: what their predicted sets leave of
    `blocks`, at least 0. block_s: seconds in which a block is computed or loaded again.
    """

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks
        self.block_s = 0.0
        self.forecast = ServiceForecast()
        self.residents: set[str] = set()
        self.left = blocks
        self._sets: dict[str, WorkingSet] = {}
        self._growth: deque[int] = deque(maxlen=_LEARNED)
        self._gaps: deque[float] = deque(maxlen=_GAPS)
        # Whether programs called again after their first gaps.
        self._returned: deque[bool] = deque(maxlen=_GAPS)
        # Programs in a gap within the limit, the longest one first.
        self._idle: OrderedDict[str, WorkingSet] = OrderedDict()
        self._tenants: Counter[str] = Counter()
        # Changes of the residents that `choose` has not reported yet.
        self._came: set[str] = set()
        self._gone: set[str] = set()
        # Candidates that are not residents.
        self._outside = 0
        self._changed = False

    def arrive(
        self,
        program: str,
        blocks: int,
        now: float,
        arrival_s: float,
        tenant: str = "",
        weight: float = 1.0,
        service_s: float = 0.0,
    ) -> None:
        """A call of a program has arrived. blocks: of its context. arrival_s: of the program.
        service_s: what its ended calls have received."""
        known = self._sets.get(program)
        if known is None:
            known = WorkingSet(arrival_s, tenant, weight, blocks, blocks)
            self._sets[program] = known
            self._tenants[tenant] += 1
            self._add(program, known)
        elif known.calls <= 0:
            self._gaps.append(now - known.idle_since)
            if known.made == 1:
                self._returned.append(True)
            self._idle.pop(program, None)
            if known.away:
                known.away = False
                self._add(program, known)
        known.calls += 1
        known.made += 1
        self._attain(known, service_s)
        self._grow(known, blocks)

    def leave(self, program: str, blocks: int, now: float, service_s: float = 0.0) -> None:
        """A call of a program has ended with a context of this many blocks. service_s: what the
        program has received by now."""
        known = self._sets.get(program)
        if known is None:
            return
        self._attain(known, service_s)
        known.calls -= 1
        known.idle_since = now
        self._grow(known, blocks)
        if known.calls <= 0:
            self._idle[program] = known
            if known.made == 1 and not self._programs_return():
                self._leave_place(program, known)
        if len(self._sets) > _MOST_PROGRAMS:
            self._forget()

    def end(self, program: str) -> None:
        """A program will not call again."""
        known = self._sets.pop(program, None)
        if known is not None:
            self._tenants -= Counter([known.tenant])
            self.forecast.end(known.service_s)
            self._judge(program, known)
            self._remove(program, known)
            if not known.away:
                self._growth.append(known.largest - known.first)

    def calls_of(self, program: str) -> int:
        """Return how many calls a program has made; 0 if it is unknown."""
        known = self._sets.get(program)
        return 0 if known is None else known.made

    def level(self, program: str) -> int:
        """Return the level of a program, the lowest first (see ServiceForecast). The context of a
        program that is no resident has to be computed again."""
        known = self._sets.get(program)
        if known is None:
            return self.forecast.level(0.0)
        setup_s = 0.0 if program in self.residents else known.largest * self.block_s
        return self.forecast.level(known.service_s, setup_s)

    def expire(self, before: float) -> None:
        """Programs without a call since before this instant are no candidates until they call
        again."""
        while self._idle:
            program, known = next(iter(self._idle.items()))
            if known.idle_since > before:
                return
            self._judge(program, known)
            if not known.away:
                self._leave_place(program, known)

    def usual_gap_s(self) -> float | None:
        """Return how long nine of ten recent gaps between two calls of a program lasted at most,
        seconds; None if few are known."""
        if len(self._gaps) < _FEWEST_GAPS:
            return None
        return sorted(self._gaps)[len(self._gaps) * 9 // 10]

    def next_idle(self) -> float | None:
        """Return since when the program that has waited longest is without a call; None if all
        programs have calls or are away longer than the limit."""
        return next(iter(self._idle.values())).idle_since if self._idle else None

    def choose(self) -> tuple[set[str], set[str]]:
        """Choose the residents again. Returns the programs that became residents, and those that
        are residents no more.

        Tenants take turns, the one with the fewest resident blocks per weight first. Inside a
        tenant residents come first, then programs of the lowest level, the oldest first; one that
        does not fit is skipped.
        """
        came, gone = self._came, self._gone
        self._came, self._gone = set(), set()
        if not self._changed:
            return came - gone, gone - came
        self._changed = False
        before = (self.residents | gone) - came
        queues: dict[str, list[tuple[bool, int, float, str]]] = {}
        for name, known in self._sets.items():
            if not known.away:
                place = (name not in self.residents, self.level(name), known.arrival_s, name)
                queues.setdefault(known.tenant, []).append(place)
        for queue in queues.values():
            queue.sort(reverse=True)
        held = dict.fromkeys(queues, 0.0)
        chosen: dict[str, int] = {}
        left, misfits = self.blocks, 0
        while queues and misfits < _TRIED:
            tenant = min(queues, key=lambda name: (held[name], name))
            *_, name = queues[tenant].pop()
            if not queues[tenant]:
                del queues[tenant]
            known = self._sets[name]
            wanted = self._predicted(known)
            if wanted > left:
                misfits += 1
                continue
            left -= wanted
            held[tenant] += wanted / known.weight
            chosen[name] = wanted
        for name, known in self._sets.items():
            known.reserved = chosen.get(name, 0)
        self.residents, self.left = set(chosen), left
        self._outside = sum(not known.away for known in self._sets.values()) - len(chosen)
        return self.residents - before, before - self.residents

    def violations(self) -> list[str]:
        """Return inconsistencies in words."""
        found = [
            f"{name} has {known.calls} calls"
            for name, known in self._sets.items()
            if known.calls < 0
        ]
        reserved = sum(known.reserved for known in self._sets.values())
        if not self._changed and self.left != self.blocks - reserved:
            found.append(f"{self.left} blocks are left of {self.blocks}, {reserved} are reserved")
        return found

    def clear(self) -> None:
        """The cache was emptied: forget programs without a call, and choose all residents anew."""
        for name in [name for name, known in self._sets.items() if known.calls <= 0]:
            self.end(name)
        self.residents, self._came, self._gone, self._changed = set(), set(), set(), True

    def _add(self, program: str, known: WorkingSet) -> None:
        """A candidate has come. It takes no other's place, except that of another tenant."""
        wanted = self._predicted(known)
        if self._outside or wanted > self.left:
            self._changed |= len(self._tenants) > 1
        if self._changed or wanted > self.left:
            self._outside += 1
            return
        self.left -= wanted
        known.reserved = wanted
        self.residents.add(program)
        self._came.add(program)

    def _remove(self, program: str, known: WorkingSet) -> None:
        """A candidate has gone."""
        if program not in self.residents:
            self._outside -= not known.away
            return
        self.residents.remove(program)
        self._gone.add(program)
        self.left += known.reserved
        known.reserved = 0
        # Its place is for another candidate.
        self._changed |= self._outside > 0

    def _forget(self) -> None:
        """End the programs that have been away longest: many, because one takes as long to find."""
        idle = [name for name, known in self._sets.items() if known.calls <= 0]
        for name in nsmallest(_FORGOTTEN, idle, key=lambda name: self._sets[name].idle_since):
            self.end(name)

    def _programs_return(self) -> bool:
        known = len(self._returned)
        return known < _FEWEST_GAPS or sum(self._returned) >= _RETURNING * known

    def _leave_place(self, program: str, known: WorkingSet) -> None:
        self._growth.append(known.largest - known.first)
        self._remove(program, known)
        known.away = True

    def _judge(self, program: str, known: WorkingSet) -> None:
        """Its gap within the limit is over, without a call."""
        if self._idle.pop(program, None) is not None and known.made == 1:
            self._returned.append(False)

    def _grow(self, known: WorkingSet, blocks: int) -> None:
        if blocks <= known.largest:
            return
        known.largest = blocks
        more = blocks - known.reserved
        if known.reserved and more > 0:
            self.left -= more
            known.reserved = blocks
            # Residents lose their places, the ones of the highest level first.
            self._changed |= self.left < 0

    def _predicted(self, known: WorkingSet) -> int:
        growth = sum(self._growth) / len(self._growth) if self._growth else 0.0
        more = max(0.0, known.first + growth - known.largest)
        return known.largest + int(_GROWTH * more)

    def _attain(self, known: WorkingSet, service_s: float) -> None:
        self.forecast.serve(known.service_s, service_s)
        known.service_s = max(known.service_s, service_s)
