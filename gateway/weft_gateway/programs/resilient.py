"""The process table on Redis that goes on while Redis is away.

    shared --(no answer within the timeout)--> local --(Redis answers, all made up for)--> shared

While local, the gateway decides by its own view (`outage`), which is marked as such, and keeps a
journal. Nobody waits for Redis then but one task, which looks for it every `probe_s` seconds. When
Redis is back that task replays the journal. Each event is in the table once afterwards, also one
that Redis had carried out while its answer was lost (`lua/common.lua`, `replayed`). If the rows
were lost, they are made again of what each gateway knows (`lua/restore.lua`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Final

from weft_gateway.model import Census, Closing, Gone, Opened, Opening, Program, ProgramKey, Told
from weft_gateway.programs.events import Event, new_id
from weft_gateway.programs.outage import MAX_EVENTS, Held, Outage
from weft_gateway.programs.redis import RedisTable
from weft_gateway.programs.table import TableUnavailable

log = logging.getLogger(__name__)

_PROBE_S: Final = 0.25
_BATCH: Final = 200
_FAREWELL_S: Final = 2.0


class ResilientTable:
    """See ProcessTable. Opening and closing a call never raise TableUnavailable."""

    def __init__(
        self, shared: RedisTable, probe_s: float = _PROBE_S, max_events: int = MAX_EVENTS
    ) -> None:
        self._shared = shared
        self._probe_s = probe_s
        self._max_events = max_events
        self._held: dict[str, Held] = {}
        self._outage: Outage | None = None
        self._identity: bytes | None = None
        self._census = Census(0, 0, 0)
        self._return: asyncio.Task[None] | None = None
        # Set while the last events are replayed: then whoever comes waits for that.
        self._turning: asyncio.Future[None] | None = None

    @property
    def local(self) -> bool:
        """See ProcessTable."""
        return self._outage is not None

    async def open_call(self, opening: Opening) -> Opened:
        """See ProcessTable."""
        if self._turning is not None:
            await self._turned()
        if self._outage is None:
            try:
                opened = await self._shared.open_call(opening)
            except TableUnavailable as error:
                outage = self._leave(error)
            else:
                if self._outage is not None:
                    await self._outage.opened_there(opening, opened)
                else:
                    self._held[opening.call] = Held(opening, opened)
                return opened
        else:
            outage = self._outage
        return await outage.open_call(opening)

    async def close_call(self, closing: Closing) -> Program | None:
        """See ProcessTable."""
        if self._turning is not None:
            await self._turned()
        if self._outage is None:
            try:
                program = await self._shared.close_call(closing)
            except TableUnavailable as error:
                outage = self._leave(error)
            else:
                self._held.pop(closing.call, None)
                if program is not None and program.ephemeral and program.threads:
                    self._note(program)
                if self._outage is not None:
                    await self._outage.closed_there(closing, program)
                return program
        else:
            outage = self._outage
        return await outage.close_call(closing)

    async def start(self, key: ProgramKey, now_s: float) -> tuple[Program, bool]:
        """See ProcessTable."""
        await self._turned()
        event = new_id()
        if self._outage is None:
            try:
                return await self._shared.start(key, now_s, event)
            except TableUnavailable as error:
                self._leave(error)
        return await self._away().start(key, now_s, event)

    async def end(self, key: ProgramKey, now_s: float) -> Program | None:
        """See ProcessTable."""
        await self._turned()
        event = new_id()
        if self._outage is None:
            try:
                program = await self._shared.end(key, now_s, event)
            except TableUnavailable as error:
                self._leave(error)
            else:
                if program is not None and program.ephemeral and program.threads:
                    self._note(program)
                return program
        return await self._away().end(key, now_s, event)

    async def tell(self, key: ProgramKey, told: Told, now_s: float) -> Program | None:
        """See ProcessTable."""
        await self._turned()
        event = new_id()
        if self._outage is None:
            try:
                return await self._shared.tell(key, told, now_s, event)
            except TableUnavailable as error:
                self._leave(error)
        return await self._away().tell(key, told, now_s, event)

    async def get(self, key: ProgramKey) -> Program | None:
        """See ProcessTable."""
        if self._outage is None:
            try:
                return await self._shared.get(key)
            except TableUnavailable as error:
                self._leave(error)
        return await self._away().view.get(key)

    async def programs(self, tenant: str, limit: int, after: str = "") -> Sequence[Program]:
        """See ProcessTable."""
        if self._outage is None:
            try:
                return await self._shared.programs(tenant, limit, after)
            except TableUnavailable as error:
                self._leave(error)
        return await self._away().view.programs(tenant, limit, after)

    def peek(self, key: ProgramKey) -> Program | None:
        """See ProcessTable."""
        outage = self._outage
        return self._shared.peek(key) if outage is None else outage.view.peek(key)

    def in_flight(self) -> Mapping[str, int]:
        """See ProcessTable."""
        outage = self._outage
        return self._shared.in_flight() if outage is None else outage.view.in_flight()

    async def count(self) -> Mapping[str, int]:
        """See ProcessTable. While the store is away: as this gateway knows."""
        if self._outage is None:
            try:
                return await self._shared.count()
            except TableUnavailable as error:
                self._leave(error)
        return self._away().view.in_flight()

    async def expire(self, now_s: float, idle_s: float) -> Sequence[Gone]:
        """See ProcessTable. While the store is away, only the view is kept small: which programs
        are idle is not this gateway's alone to say."""
        if self._outage is None:
            try:
                if await self._same():
                    return await self._shared.expire(now_s, idle_s)
                self._leave(TableUnavailable("the rows of the process table were lost"))
            except TableUnavailable as error:
                self._leave(error)
        await self._away().view.expire(now_s, idle_s)
        return []

    async def census(self) -> Census:
        """See ProcessTable. While the store is away: as it was last told."""
        if self._outage is None:
            try:
                self._census = await self._shared.census()
            except TableUnavailable as error:
                self._leave(error)
        return self._census

    async def check(self) -> Sequence[str]:
        """See ProcessTable. While the store is away: of this gateway's view."""
        if self._outage is None:
            try:
                return await self._shared.check()
            except TableUnavailable as error:
                self._leave(error)
        return await self._away().view.check()

    async def ping(self) -> None:
        """See ProcessTable."""
        if self._outage is None:
            await self._same()
        await self._shared.ping()

    async def aclose(self) -> None:
        """See ProcessTable. What waits for Redis is tried once more."""
        if self._return is not None:
            self._return.cancel()
            await asyncio.gather(self._return, return_exceptions=True)
        outage = self._outage
        if outage is not None and outage.events:
            try:
                async with asyncio.timeout(_FAREWELL_S):
                    await self._come_back(outage)
            except (TableUnavailable, TimeoutError):
                log.error("%d events could not be written", len(outage.events))
        await self._shared.aclose()

    async def _turned(self) -> None:
        while self._turning is not None:
            await asyncio.shield(self._turning)

    def _note(self, program: Program) -> None:
        """A nameless program with several calls at once, which is rare: `seen` has none."""
        for held in self._held.values():
            if held.key == program.key:
                held.program = program

    def _away(self) -> Outage:
        """The outage. A call of this follows at once upon `_leave`, or a look at `_outage`."""
        outage = self._outage
        return outage if outage is not None else self._leave(TableUnavailable("the table turned"))

    async def _same(self) -> bool:
        """Whether the table on the server is the one from before."""
        name = await self._shared.identity()
        if self._identity is None:
            self._identity = name
        return name == self._identity

    def _leave(self, error: TableUnavailable) -> Outage:
        """Go on by the own view."""
        if self._outage is None:
            log.warning("calls go on from a local view: %s", error)
            self._outage = Outage(self._shared.seen(), self._held, self._max_events)
            self._held = {}
            self._return = asyncio.get_running_loop().create_task(self._look_for_it(self._outage))
        return self._outage

    async def _look_for_it(self, outage: Outage) -> None:
        begun = monotonic()
        await self._shared.give_up()
        while True:
            try:
                await self._come_back(outage)
            except TableUnavailable as error:
                log.debug("still away: %s", error)
            except Exception:
                log.exception("making up for the absence of the process table failed")
            else:
                break
            await asyncio.sleep(self._probe_s)
        log.warning(
            "the process table is back after %.1f s; %d events made up for, %d calls uncounted",
            monotonic() - begun,
            len(outage.events),
            outage.uncounted,
        )

    async def _replay(self, events: Sequence[Event]) -> None:
        for first in range(0, len(events), _BATCH):
            await self._shared.replay(events[first : first + _BATCH])

    async def _come_back(self, outage: Outage) -> None:
        """Tell the shared table what happened, and turn to it. If this breaks off it begins again
        from the start: every step can be repeated."""
        name = await self._shared.identity()
        if self._identity not in (None, name):
            await self._shared.restore(outage.base)
            await self._replay([held.opening for held in outage.before.values()])
        # Calls go on meanwhile. When what they leave is little, or becomes no less, they wait.
        done, left = 0, len(outage.events)
        while left > _BATCH:
            await self._replay(outage.events[done : done + left])
            done, before = done + left, left
            left = len(outage.events) - done
            if left > before // 2:
                break
        await self._shared.refresh(outage.touched())
        self._turning = asyncio.get_running_loop().create_future()
        try:
            late = outage.events[done:]
            await self._replay(late)
            await self._shared.refresh(list({event.key for event in late}))
            # From here to the end nobody else runs.
            self._identity = name
            self._held = dict(outage.still_open)
            self._outage = None
        finally:
            self._turning.set_result(None)
            self._turning = None
