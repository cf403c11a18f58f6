"""Sends advice about a program's KV blocks to the replicas that may hold them. Off the hot path."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final

import httpx

from weft_gateway.engine.engine_request import ReplicaKind, program_digest
from weft_gateway.engine.fetch import EngineClient
from weft_gateway.engine.registry import Registry, Replica
from weft_gateway.model import ProgramKey

_TIMEOUT_S: Final = 2.0


class KvAdvisor:
    """Asks engines to keep, release or prioritise a program's blocks (Sutradhara, Table 1:
    `set_reuse_priority`). Never raises: advice that is not delivered has no effect.
    """

    def __init__(self, registry: Registry, client: EngineClient) -> None:
        self._registry = registry
        self._client = client

    async def retain(
        self, key: ProgramKey, names: Iterable[str], ttl_s: float, tokens: int | None = None
    ) -> dict[str, str]:
        """Pin the program's blocks for `ttl_s` seconds; with `tokens`, only those of the first
        `tokens` tokens of its context. Return the outcome per replica name.
        """
        message = {**_about(key), "action": "retain", "ttl_s": ttl_s}
        return await self._all(names, message | ({"tokens": tokens} if tokens is not None else {}))

    async def release(self, key: ProgramKey, names: Iterable[str]) -> dict[str, str]:
        """Release the program's pins and its prefill reservations. Return the outcome per replica
        name.
        """
        return await self._all(names, {**_about(key), "action": "release"})

    async def give_up(self, key: ProgramKey, names: Iterable[str]) -> dict[str, str]:
        """Release the reservations of prefills that will not be extended. Return the outcome per
        replica name.
        """
        return await self._all(names, {**_about(key), "action": "give_up"})

    async def priority(
        self, key: ProgramKey, names: Iterable[str], priority: int, ttl_s: float
    ) -> dict[str, str]:
        """Move the program's blocks `priority` tiers up or down for `ttl_s` seconds. The engine
        enforces the expiry. Return the outcome per replica name.
        """
        message = {**_about(key), "action": "priority", "priority": priority, "ttl_s": ttl_s}
        return await self._all(names, message)

    async def forget(self, key: ProgramKey, names: Iterable[str]) -> None:
        """Report that the program has ended: engines evict its blocks first among tagged ones."""
        await self._all(names, {**_about(key), "action": "forget"})

    async def _all(self, names: Iterable[str], message: dict[str, Any]) -> dict[str, str]:
        wanted = frozenset(names)
        replicas = [replica for replica in self._registry if replica.name in wanted]
        fates = await asyncio.gather(*(self._one(replica, message) for replica in replicas))
        return {replica.name: fate for replica, fate in zip(replicas, fates, strict=True)}

    async def _one(self, replica: Replica, message: dict[str, Any]) -> str:
        if replica.kind is not ReplicaKind.WEFT:
            return "ignored: the replica does not run the plugin"
        try:
            answer = await self._client.fetch(
                replica, "/weft/kv", _TIMEOUT_S, method="POST", message=message
            )
        except httpx.HTTPError as error:
            return f"ignored: {type(error).__name__}"
        return "applied" if answer.status == 200 else f"ignored: {answer.status}"


def _about(key: ProgramKey) -> dict[str, str]:
    return {"program": program_digest(key)}
