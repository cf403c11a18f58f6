"""Features observe calls while these are served. No feature is part of the path, and each can be
left out."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable

from weft_gateway.calls.call import Call

log = logging.getLogger(__name__)

Hook = Callable[[Call], Awaitable[None] | None]
# Takes bytes of a stream; returns those for the client.
Tap = Callable[[bytes], bytes]
HeadHook = Callable[[Call], Tap | None]


class CallObserver:
    """A feature. It overrides the hooks that it needs; the others cost nothing.

    A hook that has to wait returns an awaitable. Only `arrived` and `opened` may raise: the client
    gets their errors. An exception of another hook is logged, and the call goes on.
    """

    def arrived(self, call: Call) -> Awaitable[None] | None:
        """The request was read. The hook may find out whose call it is, or refuse it (ApiError)."""

    def opened(self, call: Call) -> Awaitable[None] | None:
        """The call is open at a replica."""

    def sending(self, call: Call) -> None:
        """The request for the engine is ready."""

    def head(self, call: Call) -> Tap | None:
        """The answer has begun. A tap gets the chunks of a stream, on their way to the client."""

    def closed(self, call: Call) -> Awaitable[None] | None:
        """The outcome is known. What the hook does is in effect before the process table is
        written, and so before the client can see the end of its answer."""

    def ended(self, call: Call) -> Awaitable[None] | None:
        """The client has been served, or has left. Runs for each request that arrived, also where
        `call.error` says that it was refused."""


class Observers:
    """The hooks of all observers, in the observers' order. A hook that no observer overrides is not
    in it."""

    __slots__ = ("arrived", "closed", "ended", "head", "opened", "sending")

    def __init__(self) -> None:
        self.arrived: list[Hook] = []
        self.opened: list[Hook] = []
        self.sending: list[Callable[[Call], None]] = []
        self.head: list[HeadHook] = []
        self.closed: list[Hook] = []
        self.ended: list[Hook] = []

    def add(self, observer: CallObserver | None) -> None:
        """One more. None: a feature that the settings leave out."""
        if observer is None:
            return
        for name in self.__slots__:
            if getattr(type(observer), name) is not getattr(CallObserver, name):
                getattr(self, name).append(getattr(observer, name))


async def notify(hooks: Iterable[Hook], call: Call) -> None:
    """Run hooks one after another. Their exceptions are logged: no feature fails a call."""
    for hook in hooks:
        try:
            pending = hook(call)
            if pending is not None:
                await pending
        except Exception:
            log.exception("an observer of call %s failed", call.id)


def taps(hooks: Iterable[HeadHook], call: Call) -> list[Tap]:
    """Tell observers that the answer has begun; the taps that its chunks go through."""
    found = []
    for hook in hooks:
        try:
            tap = hook(call)
        except Exception:
            log.exception("an observer of call %s failed", call.id)
            continue
        if tap is not None:
            found.append(tap)
    return found
