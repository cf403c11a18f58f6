"""What a gateway keeps while the shared table is away: its own view, and a journal to make up for.

No I/O. The view is a table in memory, begun with what the gateway last saw of each program. The
journal has every event since, in its order, as the shared table is to be told of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from weft_gateway.model import Closing, Opened, Opening, Program, ProgramKey, Thread, Told
from weft_gateway.programs.events import Ended, Event, Started, Telling, new_id
from weft_gateway.programs.memory import MemoryTable
from weft_gateway.programs.rules import goes

MAX_EVENTS: Final = 100_000


class Held:
    """A call of this gateway that is open in the shared table. path_s: its program's critical path
    when it was opened, seconds. program: as last seen where nothing else remembers that, which is
    so for nameless ones."""

    __slots__ = ("_asked", "_replica", "path_s", "program")

    def __init__(self, opening: Opening, opened: Opened) -> None:
        self._asked = opening
        self._replica = opened.replica
        self.program = opened.program
        self.path_s = opened.program.critical_path_s

    @property
    def key(self) -> ProgramKey:
        """The call's program."""
        return self._asked.key

    @property
    def opening(self) -> Opening:
        """How it was opened, with the replica that the table settled. Made when asked for: few
        calls ever see an outage."""
        return _as_settled(self._asked, self._replica)


class Outage:
    """One absence of the shared table.

    before: calls that were open in the shared table when it went. Beyond `max_events` events,
    openings are no longer noted, nor the closings of those calls: they are served and not counted.
    `uncounted` says how many. Closings of all other calls are always noted.
    """

    def __init__(
        self, seen: Iterable[Program], held: Mapping[str, Held], max_events: int = MAX_EVENTS
    ) -> None:
        self.view = MemoryTable()
        self._base = {program.key: program for program in seen}
        self.before = dict(held)
        self.events: list[Event] = []
        self.uncounted = 0
        self._open: dict[str, Held] = dict(held)
        self._unnoted: set[str] = set()
        self._max_events = max_events
        paths_s = {call: each.path_s for call, each in held.items()}
        for program in _with_calls(self._base, held.values()):
            self.view.adopt(program, paths_s)

    @property
    def still_open(self) -> dict[str, Held]:
        """The calls of this gateway that are open now and that the shared table is to know."""
        for held in self._open.values():
            program = self.view.peek(held.key)
            if program is not None and program.ephemeral:
                held.program = program
        return self._open

    @property
    def base(self) -> list[Program]:
        """What was known of the shared table's rows when it went: to that, events are added."""
        return [program for program in self._base.values() if not program.ephemeral]

    def touched(self) -> list[ProgramKey]:
        """The programs that events are about, or that have calls from before."""
        keys = [held.key for held in self.before.values()]
        return list(dict.fromkeys([*keys, *(event.key for event in self.events)]))

    async def open_call(self, opening: Opening) -> Opened:
        """See ProcessTable."""
        opened = await self.view.open_call(opening)
        if len(self.events) < self._max_events:
            held = Held(opening, opened)
            self.events.append(held.opening)
            self._open[opening.call] = held
        else:
            self._unnoted.add(opening.call)
            self.uncounted += 1
        return replace(opened, local=True)

    async def close_call(self, closing: Closing) -> Program | None:
        """See ProcessTable."""
        program = await self.view.close_call(closing)
        if closing.call in self._unnoted:
            self._unnoted.remove(closing.call)
        else:
            # Also where the view does not know the call: the shared table may.
            self.events.append(closing)
            self._open.pop(closing.call, None)
        return program

    async def start(self, key: ProgramKey, now_s: float, event: str) -> tuple[Program, bool]:
        """See ProcessTable. event: the id of this change, which may have been tried before."""
        answer = await self.view.start(key, now_s)
        self.events.append(Started(key, now_s, event or new_id()))
        return answer

    async def end(self, key: ProgramKey, now_s: float, event: str) -> Program | None:
        """See ProcessTable; and `start`."""
        program = await self.view.end(key, now_s)
        # Also where the view does not know the program: the shared table may.
        self.events.append(Ended(key, now_s, event or new_id()))
        return program

    async def tell(self, key: ProgramKey, told: Told, now_s: float, event: str) -> Program | None:
        """See ProcessTable; and `start`."""
        program = await self.view.tell(key, told, now_s)
        self.events.append(Telling(key, told, now_s, event or new_id()))
        return program

    async def opened_there(self, opening: Opening, opened: Opened) -> None:
        """The shared table's answer to an opening came after it had been given up."""
        held = Held(opening, opened)
        self.before[opening.call] = self._open[opening.call] = held
        self._base[opening.key] = opened.program
        await self.view.open_call(held.opening)

    async def closed_there(self, closing: Closing, program: Program | None) -> None:
        """The same of a closing."""
        if program is not None and not goes(program):
            self._base[closing.key] = program
        self.before.pop(closing.call, None)
        self._open.pop(closing.call, None)
        await self.view.close_call(closing)


def _as_settled(opening: Opening, replica: str) -> Opening:
    """The opening such that its replica cannot change any more. Where it is sticky, that replica
    becomes its program's home: there the latest prefix is."""
    return replace(opening, candidate=replica, eligible=frozenset())


def _with_calls(seen: Mapping[ProgramKey, Program], held: Iterable[Held]) -> Sequence[Program]:
    """The programs as last seen, with every call that this gateway has open."""
    programs = dict(seen)
    held = list(held)
    for each in held:
        if each.key not in seen:  # The latest is as last seen.
            programs[each.key] = replace(each.program, threads=())
    for each in held:
        key, opening = each.opening.key, each.opening
        program = programs[key]
        if all(thread.call != opening.call for thread in program.threads):
            thread = Thread(
                opening.call,
                opening.thread,
                opening.candidate,
                opening.now_s,
                0.0,
                0.0,
                opening.parent,
            )
            programs[key] = replace(program, threads=(*program.threads, thread))
    # One that is only there until its last call is gone where that call is over.
    return [
        program
        for program in programs.values()
        if program.threads or not (program.ended or program.ephemeral)
    ]
