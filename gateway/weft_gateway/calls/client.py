"""The client's side of a call: where its answer goes, and whether the client is still there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Protocol

from weft_gateway.engine.errors import ClientGone

# As ASGI has them.
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Cancellable(Protocol):
    """Something that can be stopped from outside, with a reason."""

    def cancel(self, error: Exception) -> None:
        """Stop; the code that waits gets `error`."""
        ...


class Disconnect:
    """Notices that the client has gone, and stops at once what works for it.

    Used after the request body has been read: all that ASGI can still bring is the disconnect.
    """

    __slots__ = ("_receive", "_task", "_work", "gone")

    def __init__(self, receive: Receive) -> None:
        self.gone = False
        self._receive = receive
        self._work: Cancellable | None = None
        self._task: asyncio.Task[None] | None = None

    def watch(self) -> None:
        """Watch from now on. The task ends by itself: once the answer is sent, `receive` brings the
        disconnect too."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._watch())

    def stops(self, work: Cancellable) -> None:
        """Cancel `work` when the client goes. Raises ClientGone if it has already."""
        if self.gone:
            raise ClientGone
        self._work = work

    def end(self, error: Exception) -> bool:
        """Stop what works for the client with `error`. Whether anything did."""
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

    ASGI reports a disconnect to a task that waits for it, and a task for each call costs more than
    parsing its body. Most short calls are over before the next tick and never get one; for the
    others the disconnect is noticed one tick late at most.
    """

    def __init__(self, tick_s: float = 0.1) -> None:
        self._tick_s = tick_s
        self._all: set[Disconnect] = set()

    def expect(self, receive: Receive) -> Disconnect:
        """A disconnect that is watched for from the next tick on."""
        disconnect = Disconnect(receive)
        self._all.add(disconnect)
        return disconnect

    def done(self, disconnect: Disconnect) -> None:
        """The call is over."""
        self._all.discard(disconnect)

    def end_all(self, error: Exception) -> int:
        """Stop everything that works for a client with `error`. How many clients that were."""
        return sum([disconnect.end(error) for disconnect in tuple(self._all)])

    async def run(self) -> None:
        """Tick until cancelled."""
        while True:
            await asyncio.sleep(self._tick_s)
            for disconnect in tuple(self._all):
                disconnect.watch()
