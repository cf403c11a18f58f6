"""Work on the event loop that takes milliseconds, one piece at a time and fairly over tenants.

Reading a large body, and looking into a long conversation, hold the loop for up to 20 ms. Where
many such requests come at once, each piece waits for its turn, and between two pieces the loop is
free for as long as the last one took: small calls of others go on meanwhile.
"""

from __future__ import annotations

import asyncio
from heapq import heappop, heappush
from itertools import count
from typing import Final

# Requests with smaller bodies take no turns.
LIGHT_BYTES: Final = 8192
_HEAVY: Final = 1 << 20
_MOST_TENANTS: Final = 4096


class Turns:
    """Gives out turns, by start-time fair queueing: a tenant's next piece comes after those of
    others that have had less. For one event loop."""

    def __init__(self) -> None:
        self._taken = False
        self._begun_s = 0.0
        self._now = 0.0
        self._ends: dict[str, float] = {}
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []
        self._number = count()

    async def take(self, tenant: str, cost: float) -> None:
        """Wait for a turn. It lasts until the caller next gives the loop up. cost: bytes of the
        body that it is about."""
        if cost > _HEAVY:
            # What came before it, as the body's last bytes, may have taken some time already.
            await asyncio.sleep(0)
        start = max(self._now, self._ends.get(tenant, 0.0))
        if len(self._ends) >= _MOST_TENANTS:
            self._ends = {name: end for name, end in self._ends.items() if end > self._now}
        self._ends[tenant] = start + cost
        loop = asyncio.get_running_loop()
        if not self._taken:
            self._begin(loop, start)
            return
        turn: asyncio.Future[None] = loop.create_future()
        heappush(self._waiting, (start, next(self._number), turn))
        await turn

    def _begin(self, loop: asyncio.AbstractEventLoop, start: float) -> None:
        self._taken = True
        self._now = start
        self._begun_s = loop.time()
        # Runs after what the turn's owner does now, or in its next step.
        loop.call_soon(self._done, loop)

    def _done(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._waiting:
            loop.call_later(loop.time() - self._begun_s, self._next, loop)
        else:
            self._rest()

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        while self._waiting:
            start, _, turn = heappop(self._waiting)
            if not turn.done():  # Its request may have been cancelled.
                turn.set_result(None)
                self._begin(loop, start)
                return
        self._rest()

    def _rest(self) -> None:
        """Nobody waits: what tenants have had is forgotten."""
        self._taken = False
        self._now = 0.0
        self._ends.clear()
