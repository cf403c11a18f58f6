"""Responses that engines generate in the background (`"background": true`, Responses API).

The engine replies to such a call at once and continues to work. The call keeps its place among its
tenant's calls in flight until the engine reports the end of the response, and its replica must not
be deleted before.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Final, NamedTuple

import httpx

from weft_gateway.calls.limits import Admitted, TenantLimits
from weft_gateway.engine.fetch import EngineClient
from weft_gateway.engine.registry import Registry, Replica

_EVERY_S: Final = 1.0
_WITHIN_S: Final = 5.0
_MOST: Final = 10_000
_GOES_ON: Final = ("queued", "in_progress")


class _BackgroundCall(NamedTuple):
    """admitted: its place, None if its tenant has no limits."""

    replica: Replica
    admitted: Admitted | None
    until_s: float


class BackgroundCalls:
    """Holds the places of background calls. keep_s: maximum time, seconds.

    The engine is asked about calls that hold a place, and about all calls on a draining replica.
    """

    def __init__(
        self, limits: TenantLimits, registry: Registry, client: EngineClient, keep_s: float
    ) -> None:
        self._registry = registry
        self._limits = limits
        self._client = client
        self._keep_s = keep_s
        self._held: dict[str, _BackgroundCall] = {}
        self._without_place: dict[str, None] = {}

    def hold(self, response_id: str, replica: str, admitted: Admitted | None) -> None:
        """Keep the place of a call whose response continues in the background of the replica.
        admitted: None if its tenant has no limits; at most _MOST such calls are known.
        """
        if admitted is None:
            self._without_place[response_id] = None
            if len(self._without_place) > _MOST:
                self._drop(next(iter(self._without_place)))
        self._held[response_id] = _BackgroundCall(
            self._registry[replica], admitted, monotonic() + self._keep_s
        )

    def replicas(self) -> frozenset[str]:
        """Return the replicas that may work on a background response."""
        return frozenset(held.replica.name for held in self._held.values())

    async def run(self) -> None:
        """Release the places of finished responses, until cancelled."""
        while True:
            await asyncio.sleep(_EVERY_S)
            now = monotonic()
            due = [
                (response_id, held)
                for response_id, held in self._held.items()
                if held.admitted or held.replica.homes_until is not None or now >= held.until_s
            ]
            await asyncio.gather(*(self._check(*held) for held in due))

    async def _check(self, response_id: str, held: _BackgroundCall) -> None:
        if monotonic() < held.until_s and await self._goes_on(response_id, held.replica):
            return
        if self._held.get(response_id) is held:
            self._drop(response_id)

    def _drop(self, response_id: str) -> None:
        held = self._held.pop(response_id)
        self._without_place.pop(response_id, None)
        if held.admitted is not None:
            self._limits.release(held.admitted)

    async def _goes_on(self, response_id: str, replica: Replica) -> bool:
        try:
            answer = await self._client.fetch(replica, f"/v1/responses/{response_id}", _WITHIN_S)
            response = answer.json() if answer.status == 200 else None
        except httpx.TimeoutException:
            return True
        except (httpx.HTTPError, ValueError):
            return False
        return isinstance(response, dict) and response.get("status") in _GOES_ON
