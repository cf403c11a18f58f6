"""Features observe calls while these are served. No feature is part of the path, and each can be
left out."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Iterable, Sequence

from weft_gateway.calls.call import PREFILL, Call, HeadHook, Hook, Hooks, Tap
from weft_gateway.engine.endpoints import Endpoint

log = logging.getLogger(__name__)


class CallObserver:
    """A feature. It overrides the hooks that it needs; the others cost nothing.

    A hook that has to wait returns an awaitable. Only `arrived` and `opened` may raise: the client
    gets their errors. An exception of another hook is logged, and the call goes on.
    """

    def observes(self, endpoint: Endpoint) -> bool:
        """Whether it observes the calls of an endpoint. By default those of clients."""
        return endpoint is not PREFILL

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
    """All observers, in the order of their hooks."""

    def __init__(self) -> None:
        self._observers: list[CallObserver] = []
        self._hooks: dict[str, Hooks] = {}

    def add(self, observer: CallObserver | None) -> None:
        """One more, before the first call. None: a feature that the settings leave out."""
        if observer is not None:
            self._observers.append(observer)

    def of(self, endpoint: Endpoint) -> Hooks:
        """The hooks that observers override for the calls of an endpoint."""
        hooks = self._hooks.get(endpoint.name)
        if hooks is None:
            hooks = self._hooks[endpoint.name] = Hooks()
            for observer in self._observers:
                for name in Hooks.__slots__ if observer.observes(endpoint) else ():
                    if getattr(type(observer), name) is not getattr(CallObserver, name):
                        getattr(hooks, name).append(getattr(observer, name))
        return hooks


def notify(hooks: Sequence[Hook], call: Call) -> Awaitable[None] | None:
    """Run hooks one after another; what is returned is to be awaited. Their exceptions are logged:
    no feature fails a call."""
    hook = None
    try:
        for hook in hooks:
            pending = hook(call)
            if pending is not None:
                return _go_on(pending, hooks[hooks.index(hook) + 1 :], call)
    except Exception:
        assert hook is not None
        log.exception("an observer of call %s failed", call.id)
        return notify(hooks[hooks.index(hook) + 1 :], call)
    return None


async def _go_on(pending: Awaitable[None], hooks: Sequence[Hook], call: Call) -> None:
    try:
        await pending
    except Exception:
        log.exception("an observer of call %s failed", call.id)
    rest = notify(hooks, call)
    if rest is not None:
        await rest


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
