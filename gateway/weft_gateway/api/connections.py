"""The connections of one process: how many there are, and which may be closed for a new one."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from weft_gateway.config import Settings
from weft_gateway.telemetry.metrics import Metrics

# A client that reads less than this in a whole send timeout does not read.
LEAST_READ_BYTES: Final = 16_384
# WebSockets that are opened in one turn of the event loop: each costs as much as a small call.
_OPENED_A_TURN: Final = 8


class Connection(Protocol):
    """A connection that can be closed in favour of another one."""

    def drop(self, code: str) -> None:
        """Close the connection; it no longer counts. code: for the metrics."""
        ...


class Openings:
    """Opens WebSockets, a few in each turn of the event loop: hundreds of clients that connect at
    once would hold up all other connections. For one event loop."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()

    def add(self, opening: Callable[[], None]) -> None:
        """Call `opening` in a later turn. The first to come is the first to be called."""
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
    """What the connections of one process share.

    open: how many there are. fresh: those without a complete head so far; idle: between two
    requests; sockets: WebSockets on which no response is in progress; receiving: a body is not
    complete. Each holds the oldest first. by_key: connections with a request in progress, and
    WebSockets, by API key. openings: WebSockets to be opened.
    """

    def __init__(self, settings: Settings, metrics: Metrics, most: int = 0) -> None:
        """most: connections at once; 0: as the settings say."""
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
        """Whether there is room for one more connection. If not, the one that has waited longest
        for its client is closed in its favour: idle connections cannot keep others out."""
        if self.open < self.most:
            return True
        for waiting in (self.fresh, self.idle, self.sockets, self.receiving):
            for connection in waiting:
                connection.drop("connection_evicted")
                return True
        return False

    def enter(self, key: bytes) -> bool:
        """Count one more connection of an API key. False, and not counted, at its limit."""
        count = self.by_key.get(key, 0)
        if count >= self.settings.max_connections_per_key:
            return False
        self.by_key[key] = count + 1
        return True

    def leave(self, key: bytes) -> None:
        """Count one connection of an API key less."""
        if self.by_key[key] > 1:
            self.by_key[key] -= 1
        else:
            del self.by_key[key]
