"""The engines as the tuner sees them: their costs, limits and orders."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Final

import httpx

from weft_gateway.engine.described import engine_costs, engine_order, runs_plugin
from weft_gateway.engine.fetch import EngineClient
from weft_gateway.engine.registry import Registry, Replica
from weft_gateway.tuning.replay.trace import ReplicaShape
from weft_gateway.tuning.shapes import opaque

_WITHIN_S: Final = 10.0


class EnginesUnknown(Exception):
    """The engines cannot be replayed. The message says why."""


@dataclass(frozen=True, slots=True)
class EngineSet:
    """All engines. order, options: which they share."""

    replicas: tuple[ReplicaShape, ...]
    order: str
    options: dict[str, float | int | bool]


@dataclass(slots=True, eq=False)
class Engines:
    """Reads the engines."""

    registry: Registry
    client: EngineClient

    async def read(self) -> EngineSet:
        """Return the engines that take calls. Raises EnginesUnknown if one does not report its
        costs, or if their orders differ.
        """
        able = [one for one in self.registry if one.circuit.healthy and one.homes_until is None]
        states = await asyncio.gather(*(self._state(replica) for replica in able))
        found, orders = [], []
        for replica, state in zip(able, states, strict=True):
            costs = engine_costs(state) if runs_plugin(state) else None
            order = engine_order(state) if costs is not None else None
            if costs is None or order is None:
                raise EnginesUnknown(f"{replica.name} does not report its step costs and options")
            steps, models = costs.steps, tuple(opaque(name) for name in sorted(replica.served))
            found.append(
                ReplicaShape(
                    replica.name,
                    (
                        steps.step_s,
                        steps.weights_s,
                        steps.prefill_token_s,
                        steps.decode_s,
                        steps.context_token_s,
                    ),
                    int(steps.together),
                    order.step_tokens,
                    costs.kv_tokens,
                    models,
                )
            )
            orders.append((order.policy, order.options))
        if not found:
            raise EnginesUnknown("no replica is healthy")
        if any(one != orders[0] for one in orders):
            raise EnginesUnknown("the engines have different orders or options")
        return EngineSet(tuple(found), *orders[0])

    async def _state(self, replica: Replica) -> Any:
        try:
            return (await self.client.fetch(replica, "/weft/state", _WITHIN_S)).json()
        except (httpx.HTTPError, ValueError):
            return None
