"""Listeners of a program's events: `register_streaming_callback` (Sutradhara, Table 1), as event
queues. A slow listener loses its oldest events and receives the number of lost ones.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import Any, Final

import orjson

from weft_gateway.model import ProgramKey
from weft_gateway.policies.fair_lru import FairLRU

MAX_WAITING: Final = 1024
# A tool call may have a megabyte of arguments. A queue always holds at least one event, of any
# size.
MAX_WAITING_BYTES: Final = 4 << 20


class Listener:
    """One listener's event queue, oldest first. limit, limit_bytes: maximum size of the queue."""

    def __init__(self, limit: int = MAX_WAITING, limit_bytes: int = MAX_WAITING_BYTES) -> None:
        self.lost = 0
        self._events: deque[bytes] = deque()
        self._limit = limit
        self._limit_bytes = limit_bytes
        self._bytes = 0
        self._closed = False
        self._came = asyncio.Event()

    def put(self, event: bytes) -> None:
        """Queue an event. Drop the oldest ones if the queue is full. Never waits."""
        self._events.append(event)
        self._bytes += len(event)
        while len(self._events) > 1 and (
            len(self._events) > self._limit or self._bytes > self._limit_bytes
        ):
            self._bytes -= len(self._events.popleft())
            self.lost += 1
        self._came.set()

    def close(self) -> None:
        """Close the queue: no more events follow."""
        self._closed = True
        self._came.set()

    async def get(self) -> bytes | None:
        """Wait for the next event and return it; None after the last one."""
        while not self._events:
            if self._closed:
                return None
            self._came.clear()
            await self._came.wait()
        event = self._events.popleft()
        self._bytes -= len(event)
        return event


class Listeners:
    """All listeners, by program. limit: maximum per program. per_tenant: maximum per tenant.
    in_all: maximum in total; beyond it, the oldest listener of the tenant with most listeners is
    closed. heartbeat_s: interval of keep-alives, seconds; None: none.
    """

    def __init__(
        self,
        limit: int = 64,
        per_tenant: int = 256,
        in_all: int = 4096,
        heartbeat_s: float | None = None,
    ) -> None:
        self.heartbeat_s = heartbeat_s
        self._limit = limit
        self._per_tenant = per_tenant
        self._of: dict[ProgramKey, list[Listener]] = {}
        self._room = FairLRU[tuple[ProgramKey, Listener]](in_all)
        self._closed = False

    def __contains__(self, key: ProgramKey) -> bool:
        return key in self._of

    def full(self, key: ProgramKey) -> bool:
        """Whether the program or its tenant has reached its limit."""
        return (
            len(self._of.get(key, ())) >= self._limit
            or self._room.count(key.tenant) >= self._per_tenant
        )

    def add(self, key: ProgramKey) -> Listener | None:
        """Add a listener. Return None if the program or its tenant has reached its limit."""
        if self.full(key):
            return None
        listener = Listener()
        if self._closed:
            listener.close()
        self._of.setdefault(key, []).append(listener)
        for _, (other, oldest) in self._room.put(key.tenant, (key, listener)):
            oldest.close()
            self._forget(other, oldest)
        return listener

    def remove(self, key: ProgramKey, listener: Listener) -> None:
        """Remove a listener."""
        if listener in self._of.get(key, ()):
            self._room.drop(key.tenant, (key, listener))
            self._forget(key, listener)

    def _forget(self, key: ProgramKey, listener: Listener) -> None:
        there = self._of[key]
        there.remove(listener)
        if not there:
            del self._of[key]

    def publish(self, key: ProgramKey, event: Mapping[str, Any]) -> None:
        """Send an event of the program to all its listeners, as JSON."""
        there = self._of.get(key)
        if there:
            written = orjson.dumps(event)
            for listener in there:
                listener.put(written)

    def close(self) -> None:
        """Close all current and future listeners when the gateway shuts down, after their queued
        events. No more calls can arrive.
        """
        self._closed = True
        for there in self._of.values():
            for listener in there:
                listener.close()
