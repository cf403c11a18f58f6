"""Tracks the connections of one process, and selects one to close for a new one."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from weft_gateway.constants import Constants
from weft_gateway.telemetry.metrics import Metrics

# Time that pieces of work for WebSockets take per turn of the event loop. A piece takes at most
# about a millisecond.
_A_TURN_S: Final = 0.002


class Connection(Protocol):
    """A connection that the gateway can close in favour of another one."""

    def drop(self, code: str) -> None:
        """Close the connection; it no longer counts. code: error code for the metrics."""
        ...


class Pieces:
    """Runs pieces of work for WebSockets: openings, and the parsing of frames. Hundreds of clients
    that need one at once would block all other connections, so a turn of the event loop runs only a
    few, fair over API keys. For one event loop.
    """

    def __init__(self) -> None:
        self._waiting: dict[bytes, deque[Callable[[], None]]] = {}
        self._taken = False

    def add(self, key: bytes, piece: Callable[[], None]) -> None:
        """Call `piece` for an API key: now if it is the first in this turn, else in a later one."""
        if self._taken:
            self._waiting.setdefault(key, deque()).append(piece)
            return
        self._taken = True
        asyncio.get_running_loop().call_soon(self._turn)
        piece()

    def _turn(self) -> None:
        loop = asyncio.get_running_loop()
        end_s = loop.time() + _A_TURN_S
        if self._waiting:
            loop.call_soon(self._turn)
        else:
            self._taken = False
        while self._waiting:
            key = next(iter(self._waiting))
            pieces = self._waiting.pop(key)
            piece = pieces.popleft()
            if pieces:
                self._waiting[key] = pieces
            piece()
            if loop.time() >= end_s:
                break


class Edge:
    """State shared by the connections of one process.

    open: number of connections. fresh: connections without a complete first head. idle: connections
    between two requests. sockets: WebSockets without a response in progress. receiving: connections
    with an incomplete body. Each is ordered, oldest first. by_key: connections with a request in
    progress and WebSockets, by API key. pieces: work for WebSockets.
    """

    def __init__(self, constants: Constants, metrics: Metrics, most: int = 0) -> None:
        """most: maximum number of connections; 0: from the constants."""
        self.constants = constants
        self.metrics = metrics
        self.most = most or constants.max_connections
        self.open = 0
        self.fresh: dict[Connection, None] = {}
        self.idle: dict[Connection, None] = {}
        self.sockets: dict[Connection, None] = {}
        self.receiving: dict[Connection, None] = {}
        self.by_key: dict[bytes, int] = {}
        self.pieces = Pieces()

    def used(self) -> float:
        """Return the share of connections that cannot be closed for a new one, without the one of
        the call that asks.
        """
        waiting = len(self.fresh) + len(self.idle) + len(self.sockets) + len(self.receiving)
        return max(0, self.open - waiting - 1) / self.most

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
        if count >= self.constants.max_connections_per_key:
            return False
        self.by_key[key] = count + 1
        return True

    def leave(self, key: bytes) -> None:
        """Remove a connection of an API key from the count."""
        if self.by_key[key] > 1:
            self.by_key[key] -= 1
        else:
            del self.by_key[key]
