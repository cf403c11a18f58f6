"""The client's side of a call: sends the answer and detects a disconnect."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Protocol

from starlette.types import Receive

from weft_gateway.engine.errors import ClientGone


class Cancellable(Protocol):
    """Work that can be cancelled with a reason."""

    def cancel(self, error: Exception) -> None:
        """Stop; the waiting code gets `error`."""
        ...


class _Waiting:
    """A task that can be cancelled with a reason."""

    def __init__(self, task: asyncio.Future[None]) -> None:
        self.task = task
        self.error: Exception | None = None

    def cancel(self, error: Exception) -> None:
        self.error = error
        self.task.cancel()


class Disconnect:
    """Detects that the client has disconnected, and cancels the work for it at once.

    Used after the request body has been read: ASGI can then only deliver the disconnect.
    """

    __slots__ = ("_receive", "_task", "_work", "gone")

    def __init__(self, receive: Receive) -> None:
        self.gone = False
        self._receive = receive
        self._work: Cancellable | None = None
        self._task: asyncio.Task[None] | None = None

    def watch(self) -> None:
        """Start watching. The task ends by itself, because `receive` also reports a disconnect
        after the answer was sent.
        """
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._watch())

    def stops(self, work: Cancellable) -> None:
        """Cancel `work` when the client disconnects. Raises ClientGone if it already has."""
        if self.gone:
            raise ClientGone
        self._work = work

    async def wait(self, pending: Awaitable[None]) -> None:
        """Await `pending`. If the client disconnects, cancel it and raise ClientGone."""
        waiting = _Waiting(asyncio.ensure_future(pending))
        try:
            self.stops(waiting)
            await waiting.task
        except asyncio.CancelledError:
            if waiting.error is None:
                raise
            raise waiting.error from None
        finally:
            waiting.task.cancel()
            self._work = None
            # It refers to an error whose traceback refers to this frame, and so to the call.
            del waiting

    def end(self, error: Exception) -> bool:
        """Cancel the work for the client with `error`. Returns whether there was any."""
        if self._work is None:
            return False
        self._work.cancel(error)
        return True

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.gone = True
        if self._work is not None:
            self._work.cancel(ClientGone())


class DisconnectMonitor:
    """Starts the watching of clients in batches, `tick_s` seconds apart.

    ASGI reports a disconnect only to a waiting task, and one task per call costs more than parsing
    its body. Most short calls end before the next tick and never need one. For other calls, a
    disconnect is detected at most one tick late.
    """

    def __init__(self, tick_s: float = 0.1) -> None:
        self._tick_s = tick_s
        self._all: set[Disconnect] = set()

    def expect(self, receive: Receive) -> Disconnect:
        """Return a disconnect that is watched from the next tick."""
        disconnect = Disconnect(receive)
        self._all.add(disconnect)
        return disconnect

    def done(self, disconnect: Disconnect) -> None:
        """Stop tracking the disconnect of an ended call."""
        self._all.discard(disconnect)

    def end_all(self, error: Exception) -> int:
        """Cancel the work for all clients with `error`. Returns the number of clients."""
        return sum([disconnect.end(error) for disconnect in tuple(self._all)])

    async def run(self) -> None:
        """Tick until cancelled."""
        while True:
            await asyncio.sleep(self._tick_s)
            self._tick()

    def _tick(self) -> None:
        # In a separate method: a loop's variable would keep the last call while `run` sleeps.
        for disconnect in tuple(self._all):
            disconnect.watch()
