"""Who listens to a program: `register_streaming_callback` (Sutradhara, Table 1), as queues of
events. A listener that does not keep up loses the oldest, and is told how many."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Mapping
from typing import Any, Final

import orjson

from weft_gateway.model import ProgramKey
from weft_gateway.policies.fair_lru import FairLRU

MAX_WAITING: Final = 1024
# A tool call may have a megabyte of arguments. One event waits whatever its size.
MAX_WAITING_BYTES: Final = 4 << 20


class Listener:
    """One listener's events, oldest first. limit, limit_bytes: of those that wait."""

    def __init__(self, limit: int = MAX_WAITING, limit_bytes: int = MAX_WAITING_BYTES) -> None:
        self.lost = 0
        self._events: deque[bytes] = deque()
        self._limit = limit
        self._limit_bytes = limit_bytes
        self._bytes = 0
        self._closed = False
        self._came = asyncio.Event()

    def put(self, event: bytes) -> None:
        """One more. Never waits."""
        self._events.append(event)
        self._bytes += len(event)
        while len(self._events) > 1 and (
            len(self._events) > self._limit or self._bytes > self._limit_bytes
        ):
            self._bytes -= len(self._events.popleft())
            self.lost += 1
        self._came.set()

    def close(self) -> None:
        """There will be no more."""
        self._closed = True
        self._came.set()

    async def get(self) -> bytes | None:
        """The next one, once there is one; None after the last."""
        while not self._events:
            if self._closed:
                return None
            self._came.clear()
            await self._came.wait()
        event = self._events.popleft()
        self._bytes -= len(event)
        return event


class Listeners:
    """All listeners, by program. limit: of one program's. per_tenant: of all programs of a tenant.
    in_all: of all tenants; the one that has most gives way to others: its oldest listener ends."""

    def __init__(self, limit: int = 64, per_tenant: int = 256, in_all: int = 4096) -> None:
        self._limit = limit
        self._per_tenant = per_tenant
        self._of: dict[ProgramKey, list[Listener]] = {}
        self._room = FairLRU[tuple[ProgramKey, Listener]](in_all)
        self._tenants: Counter[str] = Counter()
        self._closed = False

    def __contains__(self, key: ProgramKey) -> bool:
        return key in self._of

    def full(self, key: ProgramKey) -> bool:
        """Whether the program, or its tenant, has as many listeners as it may."""
        return (
            len(self._of.get(key, ())) >= self._limit
            or self._tenants[key.tenant] >= self._per_tenant
        )

    def add(self, key: ProgramKey) -> Listener | None:
        """A new listener, None where the program, or its tenant, has as many as it may."""
        if self.full(key):
            return None
        listener = Listener()
        if self._closed:
            listener.close()
        self._of.setdefault(key, []).append(listener)
        self._tenants[key.tenant] += 1
        gone = self._room.put(key.tenant, (key, listener))
        if gone is not None:
            other, oldest = gone[1]
            oldest.close()
            self._forget(other, oldest)
        return listener

    def remove(self, key: ProgramKey, listener: Listener) -> None:
        """It listens no more."""
        if listener in self._of.get(key, ()):
            self._room.drop(key.tenant, (key, listener))
            self._forget(key, listener)

    def _forget(self, key: ProgramKey, listener: Listener) -> None:
        there = self._of[key]
        there.remove(listener)
        if not there:
            del self._of[key]
        self._tenants[key.tenant] -= 1
        if not self._tenants[key.tenant]:
            del self._tenants[key.tenant]

    def tell(self, key: ProgramKey, event: Mapping[str, Any]) -> None:
        """An event of the program, for all who listen, as JSON."""
        there = self._of.get(key)
        if there:
            written = orjson.dumps(event)
            for listener in there:
                listener.put(written)

    def close(self) -> None:
        """The gateway ends: so do all listeners, now or when they come, with what waits for them.
        They would wait for calls that cannot come any more."""
        self._closed = True
        for there in self._of.values():
            for listener in there:
                listener.close()
