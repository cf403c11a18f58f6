"""Tracks the connections of one process, and selects one to close for a new one."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from weft_gateway.config import Settings
from weft_gateway.telemetry.metrics import Metrics

# WebSockets opened per turn of the event loop: each costs as much as a small call.
_OPENED_A_TURN: Final = 8


class Connection(Protocol):
    """A connection that the gateway can close in favour of another one."""

    def drop(self, code: str) -> None:
        """Close the connection; it no longer counts. code: error code for the metrics."""
        ...


class Openings:
    """Opens a few WebSockets per turn of the event loop: hundreds of clients that connect at once
    would block all other connections. For one event loop.
    """

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()

    def add(self, opening: Callable[[], None]) -> None:
        """Call `opening` in a later turn, in order of arrival."""
        self._waiting.append(opening)
        if len(self._waiting) == 1:
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        openings = [self._waiting.popleft() for _ in range(min(_OPENED_A_TURN, len(self._waiting)))]
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._turn)
        for opening in openings:
            opening()


class Edge:
    """State shared by the connections of one process.

    open: number of connections. fresh: connections without a complete first head. idle: connections
    between two requests. sockets: WebSockets without a response in progress. receiving: connections
    with an incomplete body. Each is ordered, oldest first. by_key: connections with a request in
    progress and WebSockets, by API key. openings: WebSockets to be opened.
    """

    def __init__(self, settings: Settings, metrics: Metrics, most: int = 0) -> None:
        """most: maximum number of connections; 0: from the settings."""
        self.settings = settings
        self.metrics = metrics
        self.most = most or settings.max_connections
        self.open = 0
        self.fresh: dict[Connection, None] = {}
        self.idle: dict[Connection, None] = {}
        self.sockets: dict[Connection, None] = {}
        self.receiving: dict[Connection, None] = {}
        self.by_key: dict[bytes, int] = {}
        self.openings = Openings()

    def make_room(self) -> bool:
        """Whether a new connection is possible. At the limit, closes the connection that has waited
        longest for its client: idle connections cannot exclude new ones.
        """
        if self.open < self.most:
            return True
        for waiting in (self.fresh, self.idle, self.sockets, self.receiving):
            for connection in waiting:
                connection.drop("connection_evicted")
                return True
        return False

    def enter(self, key: bytes) -> bool:
        """Count a connection of an API key. Return False without counting it at the limit."""
        count = self.by_key.get(key, 0)
        if count >= self.settings.max_connections_per_key:
            return False
        self.by_key[key] = count + 1
        return True

    def leave(self, key: bytes) -> None:
        """Remove a connection of an API key from the count."""
        if self.by_key[key] > 1:
            self.by_key[key] -= 1
        else:
            del self.by_key[key]
