"""Lineage: identifies calls without an identity by their text, and learns from their answers."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable
from dataclasses import dataclass
from time import time

from weft_gateway.calls.call import PREFILL, Call
from weft_gateway.calls.observers import CallObserver
from weft_gateway.calls.turns import LIGHT_BYTES, Turns
from weft_gateway.engine.endpoints import Endpoint
from weft_gateway.model import Outcome, ProgramKey
from weft_gateway.overlap.answers import MAX_ANSWER_BYTES
from weft_gateway.programs.identity import Identity
from weft_gateway.programs.lineage.fingerprint import Stale
from weft_gateway.programs.lineage.rules import Asked, shown
from weft_gateway.programs.lineage.tracker import Lineage
from weft_gateway.programs.table import ProcessTable, TableUnavailable
from weft_gateway.telemetry.receipts import Receipts
from weft_gateway.telemetry.tasks import Spawner

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class LineageObserver(CallObserver):
    """Joins calls without an identity to the programs whose messages they continue. If the store is
    away, a call stays a separate program.

    receipts: moved if calls turn out to belong to another program. spawner: runs work beside the
    calls.
    """

    lineage: Lineage
    table: ProcessTable
    turns: Turns
    receipts: Receipts
    spawner: Spawner

    def observes(self, endpoint: Endpoint) -> bool:
        """Observe calls whose messages can be recognised."""
        return endpoint.is_text and endpoint is not PREFILL

    def arrived(self, call: Call) -> Awaitable[None] | None:
        """Find the call's program by its messages."""
        if call.identity.source != "none" or call.skimmed:
            return None
        if self.lineage.skips(call.key.tenant, call.body):
            return None
        if call.size > LIGHT_BYTES:
            return self._join_in_turn(call)
        return self._join(call)

    def streams(self, call: Call) -> None:
        """Record a stream, to read it after its end."""
        if call.asked is not None:
            call.record(MAX_ANSWER_BYTES)

    def closed(self, call: Call) -> Awaitable[None] | None:
        """Learn the model's answer. A call without an answer is recorded as failed, so that a
        repetition is a retry.
        """
        asked = call.asked
        if asked is None:
            return None
        call.asked = None
        if call.outcome is not Outcome.OK:
            return self._failed(call, asked)
        return self._answered(call, asked)

    def ended(self, call: Call) -> Awaitable[None] | None:
        """Record a call that was not closed or never opened as failed."""
        asked, call.asked = call.asked, None
        return None if asked is None else self._failed(call, asked)

    async def _join_in_turn(self, call: Call) -> None:
        await self.turns.take(call.key.tenant, call.size)
        await self._join(call)

    async def _join(self, call: Call) -> None:
        own = call.identity
        tenant, fresh = own.key
        try:
            try:
                asked = await self.lineage.ask(tenant, call.body, fresh, time())
            except Stale:
                call.read_whole()
                asked = await self.lineage.ask(tenant, call.body, fresh, time())
        except TableUnavailable:
            return
        call.asked = asked
        if (reading := call.reading) is not None:
            known = call.known
            since = reading.first if known is None else known.last
            reading.start, reading.points = asked.prompt.chain(reading.first, since)
            reading.pieces, reading.lines = asked.prompt.own()
        verdict = asked.verdict
        call.identity = Identity(
            own.key if verdict.program == fresh else ProgramKey(tenant, verdict.program),
            verdict.thread_name,
            verdict.parent_name,
            "lineage",
            ephemeral=False,
        )
        for owner, into in verdict.folds:
            self.receipts.move(tenant, owner, into, shown)
            # Its next calls count for `into`, whose row holds the usage.
            self.spawner.spawn(self._end(ProgramKey(tenant, owner)))

    async def _end(self, key: ProgramKey) -> None:
        with contextlib.suppress(TableUnavailable):
            await self.table.end(key, time())

    async def _answered(self, call: Call, asked: Asked) -> None:
        answer = call.parsed_answer()
        with contextlib.suppress(TableUnavailable):
            await self.lineage.answered(asked, answer, time())

    async def _failed(self, call: Call, asked: Asked) -> None:
        with contextlib.suppress(TableUnavailable):
            await self.lineage.failed(asked, time())
