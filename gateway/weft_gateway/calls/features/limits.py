"""Limits of tenants: admits a call, corrects its tokens, releases its place.

Over a limit, calls of programs that have begun wait in the order of their arrival, and other calls
are refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass, field
from time import perf_counter
from typing import Final

from weft_gateway.calls.begun import has_begun
from weft_gateway.calls.call import Call
from weft_gateway.calls.limits import OverLimit, TenantLimits
from weft_gateway.calls.observers import CallObserver
from weft_gateway.calls.placement import PromptCounter
from weft_gateway.programs.table import ProcessTable

# The first call of a line tries at least and at most this often.
_SHORTEST_S: Final = 0.1
_LONGEST_S: Final = 5.0


@dataclass(slots=True, eq=False)
class _Line:
    """The held calls of one tenant. turn: the first one has it. over: why it waits."""

    over: OverLimit
    calls: int = 0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class LimitsObserver(CallObserver):
    """Applies the limits of tenants to calls."""

    def __init__(self, limits: TenantLimits, counter: PromptCounter, table: ProcessTable) -> None:
        self._limits = limits
        self._counter = counter
        self._table = table
        self._lines: dict[str, _Line] = {}
        # Calls over a limit whose program is not known yet.
        self._over: dict[str, OverLimit] = {}

    async def arrived(self, call: Call) -> None:
        """Admit the call if it is within the limits."""
        line = self._lines.get(call.caller.tenant)
        if line is not None:
            self._over[call.id] = line.over.again()
            return
        try:
            await self._admit(call)
        except OverLimit as over:
            self._over[call.id] = over

    def held(self, call: Call) -> Awaitable[None] | None:
        """Hold a call over a limit. Raises ApiError 429 for one of a program that has not begun."""
        over = self._over.pop(call.id, None)
        return None if over is None else self._wait(call, over)

    def closed(self, call: Call) -> None:
        """Correct the tokens by the engine's count."""
        admitted, usage = call.admitted, call.usage
        if admitted is not None and usage is not None:
            self._limits.used(admitted, usage.prompt_tokens + usage.output_tokens)

    def ended(self, call: Call) -> None:
        """Release the call's place."""
        self._over.pop(call.id, None)
        admitted, call.admitted = call.admitted, None
        if admitted is not None:
            self._limits.release(admitted)

    async def _admit(self, call: Call) -> None:
        tokens = self._counter.prompt_tokens(call)
        call.admitted = await self._limits.admit(call.caller.tenant, tokens)

    async def _wait(self, call: Call, over: OverLimit) -> None:
        if not await has_begun(self._table, call):
            raise over
        tenant, begun = call.caller.tenant, perf_counter()
        line = self._lines.setdefault(tenant, _Line(over))
        line.calls += 1
        try:
            async with line.turn:
                while True:
                    try:
                        await self._admit(call)
                        return
                    except OverLimit as still:
                        line.over = still
                        wait_s = still.wait_s
                    await asyncio.sleep(min(max(wait_s, _SHORTEST_S), _LONGEST_S))
        finally:
            call.held_s += perf_counter() - begun
            line.calls -= 1
            if not line.calls:
                del self._lines[tenant]
