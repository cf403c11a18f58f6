"""Notifies engines of programs that ended by inactivity. Off the hot path."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from weft_gateway.engine.advice import KvAdvisor
from weft_gateway.model import EndedProgram, ProgramKey

_AT_ONCE: Final = 8
_MOST: Final = 10_000
# After this time other programs have taken the blocks, or the program has returned through another
# gateway.
_PATIENCE_S: Final = 30.0


class EvictionNotifier:
    """Sends few concurrent requests and keeps a bounded queue, however many programs end at once.
    If the queue is full, the oldest entries are dropped. Entries that have waited too long are
    skipped.

    is_back: whether a program has started again, as far as this gateway knows. If so, engines are
    not notified.
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
        """Queue programs that have ended."""
        until = asyncio.get_running_loop().time() + self._patience_s
        self._waiting.extend((until, program) for program in gone if program.replicas)
        if self._waiting:
            self._come.set()

    async def run(self) -> None:
        """Send queued notifications until cancelled."""
        # If a task fails, the group cancels the others, so that a restart begins with no tasks.
        async with asyncio.TaskGroup() as group:
            for _ in range(_AT_ONCE):
                group.create_task(self._notify())

    async def _notify(self) -> None:
        now = asyncio.get_running_loop().time
        while True:
            while not self._waiting:
                self._come.clear()
                await self._come.wait()
            until, gone = self._waiting.popleft()
            if now() < until and not self._is_back(gone.key):
                await self._advisor.advise(gone.key, gone.replicas, "forget")
            else:
                # Other tasks must run even while many entries are skipped.
                await asyncio.sleep(0)
