"""Sends advice about a program's KV blocks to the replicas that may hold them. Off the hot path."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final, Literal

import httpx

from weft_gateway.engine.engine_request import ReplicaKind, program_digest
from weft_gateway.engine.fetch import EngineClient
from weft_gateway.engine.registry import Registry, Replica
from weft_gateway.model import ProgramKey

Action = Literal["retain", "release", "give_up", "priority", "forget"]

_TIMEOUT_S: Final = 2.0


class KvAdvisor:
    """Advises engines about a program's blocks (Sutradhara, Table 1: `set_reuse_priority`). Never
    raises: advice that is not delivered has no effect.

    retain: pin the blocks for `ttl_s` seconds; with `tokens`, only those of the first `tokens`
    tokens of the context. release: release pins and prefill reservations. give_up: release the
    reservations of prefills that will not be extended. priority: move the blocks `priority` tiers
    up or down for `ttl_s` seconds; the engine enforces the expiry. forget: the program has ended,
    and its blocks are evicted first among tagged ones.
    """

    def __init__(self, registry: Registry, client: EngineClient) -> None:
        self._registry = registry
        self._client = client

    async def advise(
        self, key: ProgramKey, names: Iterable[str], action: Action, **values: float | None
    ) -> dict[str, str]:
        """Send advice to the replicas with these names. Return the outcome by replica name."""
        given = {name: value for name, value in values.items() if value is not None}
        message = {"program": program_digest(key), "action": action, **given}
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
