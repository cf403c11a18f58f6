"""A process table on Redis that keeps serving while Redis is away.

    shared --(no reply within the timeout)--> local --(Redis replies, changes written)--> shared

In local mode this gateway answers from a table in its memory. The table starts with the last state
of each program that the gateway has seen and with the gateway's open calls. One task probes Redis
every `probe_s` seconds; no call waits for it.

When Redis is back, the task writes the changes that correctness needs: open calls, closings of
calls that Redis knows, and sessions that were started, ended or given attributes. If the rows were
lost, the open calls are opened again. What calls used that end in local mode is added to the usage
of their day, each once. It is not added to the totals of programs and budgets.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import Any, Final, TypeVar

from weft_gateway.model import (
    Closing,
    EndedProgram,
    Opened,
    Opening,
    Program,
    ProgramAttribute,
    ProgramCounts,
    ProgramKey,
)
from weft_gateway.model.slo import Ask
from weft_gateway.model.spending import Changes
from weft_gateway.model.usage import Payer, Used
from weft_gateway.programs.ledger import Ledger
from weft_gateway.programs.memory import MemoryTable
from weft_gateway.programs.redis import RedisTable
from weft_gateway.programs.redis_link import RedisLink
from weft_gateway.programs.table import TableUnavailable

log = logging.getLogger(__name__)

_PROBE_S: Final = 0.25
# The last attempt to write at shutdown, seconds.
_LAST_WRITE_S: Final = 2.0
# Changes that wait for Redis. Above this number, the oldest are dropped.
_MAX_CHANGES: Final = 10_000

_T = TypeVar("_T")
_Table = RedisTable | MemoryTable


class ResilientTable:
    """See ProcessTable. Opening and closing a call never raise TableUnavailable."""

    def __init__(
        self,
        shared: RedisTable,
        probe_s: float = _PROBE_S,
        failed: Callable[[], None] = lambda: None,
    ) -> None:
        """failed: called when writing back raises an unexpected exception; it is tried again."""
        self._shared = shared
        self._failed = failed
        shared.link.on_loss = self._leave
        self._probe_s = probe_s
        self._view: MemoryTable | None = None
        self._identity: bytes | None = None
        self._counts = ProgramCounts(0, 0, 0)
        self._probe: asyncio.Task[None] | None = None
        # Set while changes are written to Redis; callers wait for it.
        self._turning: asyncio.Future[None] | None = None
        # This gateway's open calls, and those of them that Redis has not been asked to open.
        self._open: dict[str, Opening] = {}
        self._unasked: set[str] = set()
        # Changes not written to Redis: the last one of each call, session and attribute.
        self._changes: dict[tuple[ProgramKey, str], Callable[[], Awaitable[Any]]] = {}
        # Usage not written to Redis, and the days of it that are being written, by their names.
        self._ledger = Ledger()
        self._charges: dict[str, tuple[str, Mapping[Payer, Used]]] = {}

    @property
    def link(self) -> RedisLink:
        """See RedisTable."""
        return self._shared.link

    @property
    def local(self) -> bool:
        """See ProcessTable."""
        return self._view is not None

    async def open_call(self, opening: Opening) -> Opened:
        """See ProcessTable."""
        if self._turning is not None:
            await self._turned()
        view = self._view
        if view is None:
            try:
                opened = await self._shared.open_call(opening)
            except TableUnavailable as error:
                view = self._leave(error)
            else:
                self._open[opening.call] = settled = _settled(opening, opened.replica)
                if self._view is not None:
                    await self._view.open_call(settled)
                return opened
            opened = await view.open_call(opening)
        else:
            opened = await view.open_call(opening)
            self._unasked.add(opening.call)
        self._open[opening.call] = _settled(opening, opened.replica)
        self._changes.pop((opening.key, ""), None)
        return replace(opened, local=True)

    async def close_call(self, closing: Closing) -> Program | None:
        """See ProcessTable."""
        if self._turning is not None:
            await self._turned()
        view = self._view
        if view is None:
            try:
                program = await self._shared.close_call(closing)
            except TableUnavailable as error:
                view = self._leave(error)
            else:
                self._open.pop(closing.call, None)
                if self._view is not None:
                    await self._view.close_call(closing)
                return program
        else:
            # Redis does not know the end of this call. If it was asked, only its script can tell
            # whether the call was added.
            self._ledger.close(closing)
            closing = replace(closing, payer=None)
        program = await view.close_call(closing)
        self._open.pop(closing.call, None)
        if closing.call in self._unasked:
            self._unasked.discard(closing.call)
        else:
            self._write_later(
                (closing.key, f"call {closing.call}"), partial(self._shared.close_call, closing)
            )
        return program

    async def start(
        self, key: ProgramKey, now_s: float, ask: Ask | None = None
    ) -> tuple[Program, bool]:
        """See ProcessTable."""
        return await self._change(key, "", lambda table: table.start(key, now_s, ask))

    async def end(self, key: ProgramKey, now_s: float) -> Program | None:
        """See ProcessTable."""
        return await self._change(key, "", lambda table: table.end(key, now_s))

    async def set_attribute(
        self, key: ProgramKey, attribute: ProgramAttribute, now_s: float
    ) -> Program | None:
        """See ProcessTable."""
        name = f"attribute {attribute.name}"
        return await self._change(
            key, name, lambda table: table.set_attribute(key, attribute, now_s)
        )

    async def set_budget(self, key: ProgramKey, changes: Changes, now_s: float) -> Program | None:
        """See ProcessTable."""
        name = f"budget {' '.join(sorted(changes))}"
        return await self._change(key, name, lambda table: table.set_budget(key, changes, now_s))

    async def get(self, key: ProgramKey) -> Program | None:
        """See ProcessTable."""
        return await self._ask(lambda table: table.get(key))

    async def programs(self, tenant: str, limit: int, after: str = "") -> Sequence[Program]:
        """See ProcessTable."""
        return await self._ask(lambda table: table.programs(tenant, limit, after))

    async def usage(self, day: str, tenant: str = "") -> Mapping[Payer, Used]:
        """See ProcessTable. Not available in local mode."""
        if self._view is not None:
            raise TableUnavailable("usage is counted on Redis, which does not reply")
        try:
            return await self._shared.usage(day, tenant)
        except TableUnavailable as error:
            self._leave(error)
            raise

    def peek(self, key: ProgramKey) -> Program | None:
        """See ProcessTable."""
        return (self._view or self._shared).peek(key)

    def in_flight(self) -> Mapping[str, int]:
        """See ProcessTable."""
        return (self._view or self._shared).in_flight()

    def work(self) -> Mapping[str, int]:
        """See ProcessTable. In local mode: of this gateway's calls."""
        return (self._view or self._shared).work()

    async def count(self) -> Mapping[str, int]:
        """See ProcessTable. In local mode: this gateway's calls."""
        return await self._ask(lambda table: table.count())

    async def homes(self) -> Mapping[str, int]:
        """See ProcessTable. In local mode: of the programs in this gateway's view."""
        return await self._ask(lambda table: table.homes())

    async def expire(self, now_s: float, idle_s: float) -> Sequence[EndedProgram]:
        """See ProcessTable. In local mode, only this gateway's view is trimmed: another gateway may
        have calls of a program that is idle here.
        """
        if self._view is None:
            try:
                if await self._same():
                    return await self._shared.expire(now_s, idle_s)
                self._leave(TableUnavailable("the rows of the process table were lost"))
            except TableUnavailable as error:
                self._leave(error)
        if self._view is not None:
            await self._view.expire(now_s, idle_s)
        return []

    async def counts(self) -> ProgramCounts:
        """See ProcessTable. In local mode: the last values read."""
        if self._view is None:
            try:
                self._counts = await self._shared.counts()
            except TableUnavailable as error:
                self._leave(error)
        return self._counts

    async def check(self) -> Sequence[str]:
        """See ProcessTable. In local mode, this gateway's view is checked."""
        return await self._ask(lambda table: table.check())

    async def ping(self) -> None:
        """See ProcessTable."""
        if self._view is None:
            await self._same()
        await self._shared.ping()

    async def aclose(self) -> None:
        """See ProcessTable. Tries once more to write the waiting changes."""
        if self._probe is not None:
            self._probe.cancel()
            await asyncio.gather(self._probe, return_exceptions=True)
        if self._view is not None:
            with suppress(TableUnavailable, TimeoutError):
                async with asyncio.timeout(_LAST_WRITE_S):
                    await self._come_back()
        await self._shared.aclose()

    async def _ask(self, question: Callable[[_Table], Awaitable[_T]]) -> _T:
        if self._view is None:
            try:
                return await question(self._shared)
            except TableUnavailable as error:
                return await question(self._leave(error))
        return await question(self._view)

    async def _change(
        self, key: ProgramKey, name: str, change: Callable[[_Table], Awaitable[_T]]
    ) -> _T:
        await self._turned()
        view = self._view
        if view is None:
            try:
                return await change(self._shared)
            except TableUnavailable as error:
                view = self._leave(error)
        done = await change(view)
        self._write_later((key, name), partial(change, self._shared))
        return done

    def _write_later(
        self, name: tuple[ProgramKey, str], change: Callable[[], Awaitable[Any]]
    ) -> None:
        """Keep a change for Redis in place of an earlier one of this name."""
        self._changes.pop(name, None)
        self._changes[name] = change
        if len(self._changes) > _MAX_CHANGES:
            del self._changes[next(iter(self._changes))]

    async def _turned(self) -> None:
        while self._turning is not None:
            await asyncio.shield(self._turning)

    async def _same(self) -> bool:
        """Whether the server still has the same table."""
        name = await self._shared.identity()
        if self._identity is None:
            self._identity = name
        return name == self._identity

    def _leave(self, error: TableUnavailable) -> MemoryTable:
        """Enter local mode and return the view."""
        self._shared.link.away = True
        if self._view is None:
            log.warning("using a local view: %s", error)
            self._view = MemoryTable()
            shared = self._shared
            self._view.adopt(shared.seen(), self._open.values(), shared.accounts())
            self._probe = asyncio.get_running_loop().create_task(self._probe_until_back())
        return self._view

    async def _probe_until_back(self) -> None:
        begun = monotonic()
        while True:
            try:
                await self._come_back()
            except TableUnavailable as error:
                log.debug("still away: %s", error)
            except Exception:
                log.exception("writing changes back to the process table failed")
                self._failed()
            else:
                break
            await asyncio.sleep(self._probe_s)
        log.warning("the process table is back after %.1f s", monotonic() - begun)

    async def _come_back(self) -> None:
        """Write the changes and leave local mode. Every step can be repeated, so after an
        interruption the next attempt starts again.
        """
        name = await self._shared.identity()
        self._shared.link.away = False
        # Most changes are written while calls continue, so that calls wait only for the rest.
        await self._write_changes()
        self._turning = asyncio.get_running_loop().create_future()
        try:
            written = None
            # Calls that fail meanwhile may add to both.
            while self._changes or self._ledger.days or written != list(self._open):
                written = list(self._open)
                await self._write_changes()
            await self._shared.refresh()
            self._identity = name
            self._view = None
        finally:
            self._turning.set_result(None)
            self._turning = None

    async def _write_changes(self) -> None:
        """Write the open calls and the waiting changes to Redis."""
        self._unasked.clear()
        await self._shared.reopen(list(self._open.values()))
        for name, change in list(self._changes.items()):
            await change()
            if self._changes.get(name) is change:
                del self._changes[name]
        if not self._charges:
            days, self._ledger = self._ledger.days, Ledger()
            self._charges = {os.urandom(12).hex(): day for day in days.items()}
        for charge, (day, used) in list(self._charges.items()):
            await self._shared.charge(day, used, charge)
            del self._charges[charge]


def _settled(opening: Opening, replica: str) -> Opening:
    """The opening with its replica fixed, which no budget refuses. If it is sticky, that replica
    becomes the home.
    """
    return replace(opening, candidate=replica, eligible=frozenset(), admitted=True)
