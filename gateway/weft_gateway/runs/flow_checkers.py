"""The processes that check workflows. One slow check delays no check of another tenant."""

from __future__ import annotations

import asyncio
from typing import Final

from weft_gateway.runs.flow_child import Child
from weft_gateway.runs.flow_wire import Check, FromWorker

# Checks at once. A tenant has one of them, so that others need not wait for its end.
_PROCESSES: Final = 2
# A process that has made this number of checks is replaced, because it keeps their templates.
_MOST_CHECKS: Final = 100
# Longer checks would delay those of others.
_CHECK_S: Final = 10.0


class Checkers:
    """The processes of one gateway. They start when they are needed."""

    def __init__(self, memory_bytes: int, stall_s: float) -> None:
        """memory_bytes: address space of a process. stall_s: time of a check, at most 10 s."""
        self._memory_bytes = memory_bytes
        self._limit_s = min(stall_s, _CHECK_S)
        self._places = asyncio.Semaphore(_PROCESSES)
        # The number of checks of each process.
        self._made: dict[Child, int] = {}
        self._idle: list[Child] = []
        self._used = False

    async def check(self, asked: Check) -> FromWorker:
        """Check a workflow. A tenant may have one check at a time. Raises ChildLost and OSError."""
        async with self._places:
            self._used = True
            good = False
            child = self._idle.pop() if self._idle else Child(self._memory_bytes, self._limit_s)
            try:
                if child not in self._made:
                    self._made[child] = 0
                    await child.start()
                self._made[child] += 1
                child.send(asked)
                found = await child.receive()
                good = self._made[child] < _MOST_CHECKS
            finally:
                # An answer that was not read must not become the answer to the next check.
                if good:
                    self._idle.append(child)
                else:
                    await self._end(child)
        return found

    async def rest(self) -> None:
        """End the idle processes if no check has begun since the last call."""
        while self._idle and not self._used:
            await self._end(self._idle.pop())
        self._used = False

    async def aclose(self) -> None:
        """End all processes."""
        self._idle.clear()
        for child in tuple(self._made):
            await self._end(child)

    async def _end(self, child: Child) -> None:
        self._made.pop(child, None)
        await child.stop()
