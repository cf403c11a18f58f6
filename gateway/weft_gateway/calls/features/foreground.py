"""Remembers when clients last used each replica, so that batches leave room for them."""

from __future__ import annotations

from math import inf
from time import monotonic

from weft_gateway.calls.call import Call
from weft_gateway.calls.observers import CallObserver
from weft_gateway.engine.endpoints import BY_PATH, Endpoint


class ForegroundObserver(CallObserver):
    """Observes the calls of clients, and not those of batches, prefills and clients that wait for
    others.
    """

    def __init__(self) -> None:
        self._last: dict[str, float] = {}

    def observes(self, endpoint: Endpoint) -> bool:
        """Observe the endpoints for clients."""
        return BY_PATH.get(endpoint.path) is endpoint

    def opened(self, call: Call) -> None:
        """Record the time."""
        if not call.hints.batch:
            self.seen(call.replica)

    def seen(self, replica: str) -> None:
        """Record that a client uses a replica, perhaps through another gateway."""
        self._last[replica] = monotonic()

    def since_s(self, replica: str) -> float:
        """Return the seconds since a client was last seen at a replica, infinity if none has."""
        last = self._last.get(replica)
        return inf if last is None else monotonic() - last

    def forget(self, replica: str) -> None:
        """Forget a replica that was removed."""
        self._last.pop(replica, None)
