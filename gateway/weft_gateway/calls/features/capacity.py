"""Refuses new programs that the replicas, or this gateway, have no room for. Calls of programs that
have begun always pass.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import random
from time import monotonic
from typing import Final

from weft_gateway import errors
from weft_gateway.calls.begun import has_begun
from weft_gateway.calls.body_bytes import BodyBytes
from weft_gateway.calls.call import Call
from weft_gateway.calls.observers import CallObserver
from weft_gateway.engine.endpoints import BY_PATH, Endpoint
from weft_gateway.engine.registry import Registry
from weft_gateway.policies.capacity import Pace, retry_after_s
from weft_gateway.programs.table import ProcessTable

# The share of the gateway's own rooms that new programs may use. The rest is for calls of others,
# until the room itself refuses any.
_SHARE: Final = 7 / 8
# The time after which a full room may have a place.
_ROOM_S: Final = 5.0


@dataclass(slots=True, eq=False)
class CapacityObserver(CallObserver):
    """Forecasts the waits of new programs. most_s: the longest wait of one that is not refused.
    gateways: the number of gateways that share the replicas. connections: the used share of the
    gateway's connections.
    """

    registry: Registry
    table: ProcessTable
    bodies: BodyBytes
    most_s: float
    gateways: Callable[[], int]
    connections: Callable[[], float] = lambda: 0.0
    _paces: dict[str, Pace] = field(default_factory=dict, init=False)

    def observes(self, endpoint: Endpoint) -> bool:
        """Observe the endpoints for clients that generate text. Batches have a window."""
        return endpoint.is_text and BY_PATH.get(endpoint.path) is endpoint

    def held(self, call: Call) -> Awaitable[None] | None:
        """Let the call pass, or refuse it with 503."""
        excess_s = self._wait_s(call.model) - self.most_s
        bodies, own = self.bodies, 0 if call.held is None else call.held.size
        if self.connections() > _SHARE or bodies.total - own > _SHARE * bodies.most:
            excess_s = max(excess_s, _ROOM_S)
        return None if excess_s <= 0 or call.hints.batch else self._refuse(call, excess_s)

    def closed(self, call: Call) -> None:
        """Learn the pace of the replica."""
        if call.superseded:
            return
        waiting, pace = self._waiting(call.replica), self._paces.get(call.replica)
        if pace is None and waiting:
            pace = self._paces[call.replica] = Pace()
        if pace is not None:
            pace.ended(monotonic(), waiting)

    def forget(self, replica: str) -> None:
        """Forget a replica that was removed."""
        self._paces.pop(replica, None)

    def _waiting(self, name: str) -> int:
        """Return the calls that wait for a replica; 0 if its slots are unknown."""
        replica = self.registry.get(name)
        if replica is None or not replica.slots:
            return 0
        return max(0, self.table.in_flight().get(name, 0) - replica.slots)

    def _wait_s(self, model: str) -> float:
        """Return the shortest wait; 0 if unknown."""
        if not self._paces:
            return 0.0
        waits = [
            self._paces[one.name].wait_s(self._waiting(one.name)) if one.name in self._paces else 0
            for one in self.registry.able()
            if not model or not one.served or model in one.served
        ]
        return min(waits, default=0.0) / max(1, self.gateways())

    async def _refuse(self, call: Call, excess_s: float) -> None:
        if not await has_begun(self.table, call):
            raise errors.of("over_capacity", retry_after_s=retry_after_s(excess_s, random()))
