"""Responses that engines generate in the background (`"background": true`, Responses API).

The engine replies to such a call at once and continues to work. The call keeps its place among its
tenant's calls in flight until the engine reports the end of the response, and its replica must not
be deleted before.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from time import monotonic
from typing import Final, NamedTuple

import httpx

from weft_gateway.calls.limits import Admitted, TenantLimits
from weft_gateway.calls.stored import UNFINISHED, response_of, with_previous
from weft_gateway.engine.fetch import EngineClient
from weft_gateway.engine.registry import Registry, Replica
from weft_gateway.model import ProgramKey
from weft_gateway.programs.response_store import ResponseStore, StoredResponse
from weft_gateway.programs.table import TableUnavailable

_EVERY_S: Final = 1.0
_WITHIN_S: Final = 5.0
_MOST: Final = 10_000
_MOST_BYTES: Final = 33_554_432


class _BackgroundCall(NamedTuple):
    """admitted: its place, None if its tenant has no limits."""

    tenant: str
    replica: Replica
    admitted: Admitted | None
    until_s: float


class BackgroundCalls:
    """Holds the places of background calls. keep_s: maximum time, seconds.

    The engine is asked about calls that hold a place, and about all calls on a draining replica.
    """

    def __init__(
        self,
        limits: TenantLimits,
        registry: Registry,
        client: EngineClient,
        answers: ResponseStore,
        keep_s: float,
    ) -> None:
        self._registry = registry
        self._limits = limits
        self._client = client
        self._answers = answers
        self._keep_s = keep_s
        self._held: dict[str, _BackgroundCall] = {}
        self._without_place: dict[str, None] = {}

    def hold(self, tenant: str, response_id: str, replica: str, admitted: Admitted | None) -> None:
        """Keep the place of a call whose response continues in the background of the replica.
        admitted: None if its tenant has no limits; at most _MOST such calls are known.
        """
        if admitted is None:
            self._without_place[response_id] = None
            if len(self._without_place) > _MOST:
                self._drop(next(iter(self._without_place)))
        self._held[response_id] = _BackgroundCall(
            tenant, self._registry[replica], admitted, monotonic() + self._keep_s
        )

    def replicas(self) -> frozenset[str]:
        """Return the replicas that may work on a background response."""
        return frozenset(held.replica.name for held in self._held.values())

    async def settled(
        self, tenant: str, response_id: str, answer: StoredResponse
    ) -> StoredResponse | None:
        """Return an answer with its present response, None if its replica has none. Stores one that
        is finished. Raises httpx.HTTPError if the replica does not reply.
        """
        if response_of(answer.response).status not in UNFINISHED:
            return answer
        replica = self._registry.get(answer.replica)
        if replica is None:
            return None
        path = f"/v1/responses/{response_id}"
        fetched = await self._client.fetch(replica, path, _WITHIN_S, _MOST_BYTES)
        response = fetched.body
        if fetched.status != 200 or response_of(response).id != response_id:
            return None
        if answer.previous:
            response = with_previous(response, answer.previous)
        answer = replace(answer, response=response)
        if answer.program and response_of(response).status not in UNFINISHED:
            await self._answers.remember(ProgramKey(tenant, answer.program), {response_id: answer})
        return answer

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
        if monotonic() < held.until_s and await self._goes_on(response_id, held):
            return
        if self._held.get(response_id) is held:
            self._drop(response_id)

    def _drop(self, response_id: str) -> None:
        held = self._held.pop(response_id)
        self._without_place.pop(response_id, None)
        if held.admitted is not None:
            self._limits.release(held.admitted)

    async def _goes_on(self, response_id: str, held: _BackgroundCall) -> bool:
        # Of an answer that is no longer stored.
        unknown = StoredResponse("", replica=held.replica.name, response=b'{"status":"queued"}')
        try:
            stored = await self._answers.find(held.tenant, response_id) or unknown
            answer = await self.settled(held.tenant, response_id, stored)
        except (httpx.TimeoutException, TableUnavailable):
            return True
        except httpx.HTTPError:
            return False
        return answer is not None and response_of(answer.response).status in UNFINISHED
