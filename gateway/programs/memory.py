"""The process table in this process's memory: the default, and product code."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Mapping, Sequence
from dataclasses import replace

from gateway.model import Closing, Opened, Opening, Program, ProgramKey
from gateway.programs import rules


class MemoryTable:
    """One process, one dictionary. Nothing awaits, so every method is atomic."""

    def __init__(self) -> None:
        self._programs: dict[ProgramKey, Program] = {}
        # Ids of each tenant in order, for listing. Ephemeral programs come and go with every
        # un-keyed call, so they are left out and sorted in when asked for.
        self._named: dict[str, list[str]] = {}
        # call -> (its program, the program's critical path when it opened)
        self._open: dict[str, tuple[ProgramKey, float]] = {}
        self._in_flight: dict[str, int] = {}

    async def open_call(self, opening: Opening) -> Opened:
        """See ProcessTable."""
        if opening.call in self._open:
            raise ValueError(f"call {opening.call} is open already")
        row = self._programs.get(opening.key)
        created = row is None
        if row is None:
            row = rules.fresh(opening.key, opening.now_s, opening.ephemeral)
        program, replica = rules.opened(row, opening)
        self._put(program)
        self._open[opening.call] = (opening.key, row.critical_path_s)
        self._in_flight[replica] = self._in_flight.get(replica, 0) + 1
        return Opened(program, replica, created, self._in_flight)

    async def close_call(self, closing: Closing) -> Program | None:
        """See ProcessTable."""
        rules.check_closing(closing)
        key, critical_path_s = self._open.get(closing.call, (None, 0.0))
        if key is None or key != closing.key:
            return None
        row = self._programs[key]
        replica = next(t.replica for t in row.threads if t.call == closing.call)
        program = rules.closed(row, closing, critical_path_s)
        del self._open[closing.call]
        self._in_flight[replica] -= 1
        if not self._in_flight[replica]:
            del self._in_flight[replica]
        if rules.goes(program):
            self._remove(key)
        else:
            self._programs[key] = program
        return program

    async def start(self, key: ProgramKey, now_s: float) -> tuple[Program, bool]:
        """See ProcessTable."""
        row = self._programs.get(key)
        if row is not None:
            program = replace(row, ephemeral=False, ended=False)
            self._put(program)
            return program, False
        program = rules.fresh(key, now_s, ephemeral=False)
        self._put(program)
        return program, True

    async def end(self, key: ProgramKey, now_s: float) -> Program | None:
        """See ProcessTable."""
        row = self._programs.get(key)
        if row is None or row.ended:
            return None
        program = replace(row, ended=True)
        if program.threads:
            self._programs[key] = program
        else:
            self._remove(key)
        return program

    async def get(self, key: ProgramKey) -> Program | None:
        """See ProcessTable."""
        return self._programs.get(key)

    async def programs(self, tenant: str, limit: int, after: str = "") -> Sequence[Program]:
        """See ProcessTable."""
        names = self._named.get(tenant, [])
        first = bisect_right(names, after) if after else 0
        return [self._programs[ProgramKey(tenant, n)] for n in names[first : first + limit]]

    def peek(self, key: ProgramKey) -> Program | None:
        """See ProcessTable. Exact here."""
        return self._programs.get(key)

    def in_flight(self) -> Mapping[str, int]:
        """See ProcessTable. Exact here."""
        return self._in_flight

    async def expire(self, now_s: float, idle_s: float) -> Sequence[ProgramKey]:
        """See ProcessTable."""
        idle = [
            key
            for key, p in self._programs.items()
            if not p.threads and max(p.last_arrival_s, p.last_completion_s) < now_s - idle_s
        ]
        for key in idle:
            self._remove(key)
        return idle

    async def check(self) -> Sequence[str]:
        """See ProcessTable."""
        found: list[str] = []
        counts: dict[str, int] = {}
        calls = set()
        for program in self._programs.values():
            found += rules.violations(program)
            for thread in program.threads:
                counts[thread.replica] = counts.get(thread.replica, 0) + 1
                calls.add(thread.call)
        if counts != self._in_flight:
            found.append(f"in flight {self._in_flight}, but threads give {counts}")
        if calls != set(self._open):
            found.append(f"open calls differ from threads: {calls ^ set(self._open)}")
        return found

    async def ping(self) -> None:
        """See ProcessTable. Memory is always there."""

    async def aclose(self) -> None:
        """See ProcessTable."""

    def _put(self, program: Program) -> None:
        key = program.key
        before = self._programs.get(key)
        self._programs[key] = program
        if not program.ephemeral and (before is None or before.ephemeral):
            insort(self._named.setdefault(key.tenant, []), key.program)

    def _remove(self, key: ProgramKey) -> None:
        program = self._programs.pop(key)
        if program.ephemeral:
            return
        names = self._named[key.tenant]
        del names[bisect_right(names, key.program) - 1]
        if not names:
            del self._named[key.tenant]
