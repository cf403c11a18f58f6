"""Telling engines of programs that have ended by their silence. Off the hot path."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from weft_gateway.engine.advice import KvAdvisor
from weft_gateway.model import EndedProgram, ProgramKey

_AT_ONCE: Final = 8
_MOST: Final = 10_000
# Later than that others have taken the blocks, or the program is back through another gateway.
_PATIENCE_S: Final = 30.0


class EvictionNotifier:
    """However many programs end at once, few requests are on their way, and a bounded number waits:
    beyond it those that ended first are not told of, nor what has waited for too long.

    is_back: whether a program has begun anew, as far as this gateway knows. Engines are told
    nothing then.
    """

    def __init__(
        self,
        advisor: KvAdvisor,
        is_back: Callable[[ProgramKey], bool],
        most: int = _MOST,
        patience_s: float = _PATIENCE_S,
    ) -> None:
        self._advisor = advisor
        self._is_back = is_back
        self._patience_s = patience_s
        self._waiting: deque[tuple[float, EndedProgram]] = deque(maxlen=most)
        self._come = asyncio.Event()

    def add(self, gone: Iterable[EndedProgram]) -> None:
        """These programs have ended."""
        until = asyncio.get_running_loop().time() + self._patience_s
        self._waiting.extend((until, program) for program in gone if program.replicas)
        if self._waiting:
            self._come.set()

    async def run(self) -> None:
        """Tell of whoever comes, until cancelled."""
        # If one of them fails, the group ends the others, so that a restart begins with none.
        async with asyncio.TaskGroup() as group:
            for _ in range(_AT_ONCE):
                group.create_task(self._tell())

    async def _tell(self) -> None:
        now = asyncio.get_running_loop().time
        while True:
            while not self._waiting:
                self._come.clear()
                await self._come.wait()
            until, gone = self._waiting.popleft()
            if now() < until and not self._is_back(gone.key):
                await self._advisor.forget(gone.key, gone.replicas)
            else:
                # However many are passed over, others have their turn.
                await asyncio.sleep(0)
