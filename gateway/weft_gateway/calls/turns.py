"""Turns for work that blocks the event loop for milliseconds: one piece at a time, fair over
tenants.

Reading a large body and splitting a long conversation block the loop for up to 40 ms. If many such
requests arrive at once, each piece waits for its turn. Between two pieces the loop stays free for
the duration of the last piece, so that small calls of others continue.
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
    """Assigns turns by start-time fair queueing: a tenant's next piece comes after those of tenants
    that have used less. For one event loop.
    """

    def __init__(self) -> None:
        self._taken = False
        self._begun_s = 0.0
        self._now = 0.0
        self._ends: dict[str, float] = {}
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []
        self._number = count()

    async def take(self, tenant: str, cost: float) -> None:
        """Wait for a turn. It lasts until the caller next yields to the loop. cost: size of the
        body in bytes.
        """
        if cost > _HEAVY:
            # Earlier work in this step, such as reading the body's last bytes, may have taken time
            # already.
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
        # Runs after the current or next step of the turn's owner.
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
        """Forget the tenants' usage, because no piece waits."""
        self._taken = False
        self._now = 0.0
        self._ends.clear()
