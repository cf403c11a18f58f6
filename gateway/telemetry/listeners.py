"""Who listens to a program: `register_streaming_callback` (Sutradhara, Table 1), as queues of
events. A listener that does not keep up loses the oldest, and is told how many."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import Any, Final

from gateway.model import ProgramKey

MAX_WAITING: Final = 1024


class Listener:
    """One listener's events, oldest first."""

    def __init__(self, limit: int = MAX_WAITING) -> None:
        self.lost = 0
        self._events: deque[Mapping[str, Any]] = deque()
        self._limit = limit
        self._came = asyncio.Event()

    def put(self, event: Mapping[str, Any]) -> None:
        """One more. Never waits."""
        if len(self._events) >= self._limit:
            self._events.popleft()
            self.lost += 1
        self._events.append(event)
        self._came.set()

    async def get(self) -> Mapping[str, Any]:
        """The next one, once there is one."""
        while not self._events:
            self._came.clear()
            await self._came.wait()
        return self._events.popleft()


class Listeners:
    """All listeners, by program. limit: of one program's."""

    def __init__(self, limit: int = 64) -> None:
        self._limit = limit
        self._of: dict[ProgramKey, list[Listener]] = {}

    def __contains__(self, key: ProgramKey) -> bool:
        return key in self._of

    def add(self, key: ProgramKey) -> Listener | None:
        """A new listener, None where the program has as many as it may."""
        there = self._of.setdefault(key, [])
        if len(there) >= self._limit:
            return None
        listener = Listener()
        there.append(listener)
        return listener

    def remove(self, key: ProgramKey, listener: Listener) -> None:
        """It listens no more."""
        there = self._of.get(key, [])
        if listener in there:
            there.remove(listener)
        if not there:
            self._of.pop(key, None)

    def tell(self, key: ProgramKey, event: Mapping[str, Any]) -> None:
        """An event of the program, for all who listen."""
        for listener in self._of.get(key, ()):
            listener.put(event)
