"""Features as observers of calls. No feature is part of the path, and each one is optional."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Iterable, Sequence

from weft_gateway.calls.call import PREFILL, Call, Hook, Hooks, StreamHook, Tap
from weft_gateway.engine.endpoints import Endpoint

log = logging.getLogger(__name__)


class CallObserver:
    """A feature. It overrides the hooks that it needs; unused hooks cost nothing.

    A hook that has to wait returns an awaitable. Only `arrived`, `held` and `opened` may raise: the
    client gets their errors. An exception of another hook is logged, and the call continues.
    """

    def observes(self, endpoint: Endpoint) -> bool:
        """Whether it observes the calls of an endpoint. By default, all endpoints for clients."""
        return endpoint is not PREFILL

    def arrived(self, call: Call) -> Awaitable[None] | None:
        """The request was read. The hook may set the identity of the call or refuse it
        (ApiError).
        """

    def held(self, call: Call) -> Awaitable[None] | None:
        """The identity is known, and no replica is chosen. The hook may hold the call, until its
        client disconnects.
        """

    def opened(self, call: Call) -> Awaitable[None] | None:
        """The call is open on a replica."""

    def sending(self, call: Call) -> None:
        """The request for the engine is ready."""

    def head(self, call: Call) -> None:
        """The answer has begun."""

    def streams(self, call: Call) -> Tap | None:
        """A stream has begun. A returned tap gets its chunks before the client does."""

    def closed(self, call: Call) -> Awaitable[None] | None:
        """The outcome is known. The hook finishes before the process table is written, and so
        before the client sees the end of its answer.
        """

    def ended(self, call: Call) -> Awaitable[None] | None:
        """The client has been served or has disconnected. Runs for every request that arrived,
        including refused ones (`call.error`).
        """


class Observers:
    """All observers, in the order of their hooks."""

    def __init__(self) -> None:
        self._observers: list[CallObserver] = []
        self._hooks: dict[str, Hooks] = {}

    def add(self, observer: CallObserver | None) -> None:
        """Add an observer before the first call. None: a feature that the settings disable."""
        if observer is not None:
            self._observers.append(observer)

    def of(self, endpoint: Endpoint) -> Hooks:
        """Return the hooks that observers override for the calls of an endpoint."""
        hooks = self._hooks.get(endpoint.name)
        if hooks is None:
            hooks = self._hooks[endpoint.name] = Hooks()
            for observer in self._observers:
                for name in Hooks.__slots__ if observer.observes(endpoint) else ():
                    if getattr(type(observer), name) is not getattr(CallObserver, name):
                        getattr(hooks, name).append(getattr(observer, name))
        return hooks


def notify(hooks: Sequence[Hook], call: Call) -> Awaitable[None] | None:
    """Run hooks in order. Returns an awaitable if one of them waits. Exceptions are logged: no
    feature fails a call.
    """
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


def taps(hooks: Iterable[StreamHook], call: Call) -> list[Tap]:
    """Notify observers that a stream has begun. Returns the taps for its chunks."""
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
