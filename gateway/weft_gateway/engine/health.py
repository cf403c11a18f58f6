"""Health checks: replica state, served models, presence of the plugin. Off the hot path."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import httpx

from weft_gateway.engine.described import (
    cache_room,
    cache_sizes,
    engine_costs,
    is_gateway,
    models_of,
    owners,
    runs_plugin,
    slots,
)
from weft_gateway.engine.engine_request import ReplicaKind
from weft_gateway.engine.fetch import EngineClient, Fetched
from weft_gateway.engine.registry import Registry, Replica
from weft_gateway.policies.costs import EngineCosts

log = logging.getLogger(__name__)

# Served models change rarely (LoRA adapters), so they are requested only every 15 checks.
_LEARN_EVERY: Final = 15
# Statuses of a server without /weft/state.
_NO_ROUTE: Final = (404, 405, 501)


@dataclass(slots=True, eq=False)
class HealthLoop:
    """Checks every replica each `interval_s` seconds, and earlier after a failed call. within_s:
    timeout of one answer, from the connection to its last byte. costs: called with the step costs
    that each engine with the plugin reports, after each check.
    """

    registry: Registry
    client: EngineClient
    interval_s: float
    within_s: float = 5.0
    costs: Callable[[str, EngineCosts | None], None] | None = None
    _round: int = field(default=0, init=False)
    # Replicas whose models or kind are not fully known.
    _unsure: set[str] = field(default_factory=set, init=False)
    # Replicas with a logged warning about their unknown kind.
    _warned: set[str] = field(default_factory=set, init=False)

    async def run(self) -> None:
        """Check until cancelled."""
        suspicion = self.registry.suspicion
        while True:
            try:
                await asyncio.wait_for(suspicion.wait(), self.interval_s)
                # One check per burst of failures, and no tight loop.
                await asyncio.sleep(min(0.2, self.interval_s))
            except TimeoutError:
                pass
            suspicion.clear()
            await self.check_all()

    async def check_all(self) -> None:
        """Check all replicas concurrently. Never raises."""
        learn = self._round % _LEARN_EVERY == 0
        self._round += 1
        await asyncio.gather(*(self.check(replica, learn=learn) for replica in self.registry))

    def forget(self, name: str) -> None:
        """Forget a replica that was removed."""
        self._unsure.discard(name)
        self._warned.discard(name)

    async def check(self, replica: Replica, *, learn: bool = True) -> None:
        """Check one replica. Never raises."""
        before = replica.circuit
        error, sure, gone = "health_check", True, False
        try:
            status, body = await self._get(replica, "/health")
            # A server without /health answers 404 and is up.
            good = status < 500
            # vLLM answers 503 when its engine process has died. Other servers answer 503 when busy.
            gone = status == 503 and replica.kind in (ReplicaKind.WEFT, ReplicaKind.VLLM)
            if self._is_gateway(replica, body):
                good, error = False, "replica_is_gateway"
        except httpx.HTTPError as failure:
            good, error = False, f"health_check: {type(failure).__name__}"
            sure = not isinstance(failure, httpx.TimeoutException)
            gone = isinstance(failure, httpx.ConnectError)
        if gone:
            replica.upstream.seems_gone(asyncio.get_running_loop().time())
        else:
            replica.upstream.is_there()
        unsure = replica.doubted or replica.name in self._unsure
        if good and (learn or not before.healthy or unsure):
            replica.doubted = False
            await self._learn(replica)
        elif good and replica.kind is ReplicaKind.WEFT and (self.costs or replica.costs is None):
            with contextlib.suppress(httpx.HTTPError, ValueError):
                self._set_costs(replica.name, (await self._get(replica, "/weft/state")).json())
        replica.circuit = replica.circuit.checked(good, error, sure=sure, gone=gone)
        if replica.circuit.healthy != before.healthy:
            if good:
                log.info("replica %s is up", replica.name)
            else:
                log.warning("replica %s is down (%s)", replica.name, error)
            # The process may be a new one, with an empty cache.
            self.registry.prefixes.forget(replica.name)
        if before.alive and not replica.circuit.alive and replica.kind is ReplicaKind.STOCK:
            # It may be vLLM now, so calls must carry tenant salts until its kind is known.
            replica.kind = ReplicaKind.UNKNOWN

    def _is_gateway(self, replica: Replica, body: bytes) -> bool:
        """Whether a Weft gateway gave this answer of `/health`. A gateway that is a replica of
        itself would send each call and each administrator's request to itself for ever.
        """
        found = is_gateway(body)
        if found and replica.kind is not ReplicaKind.GATEWAY:
            replica.kind = ReplicaKind.GATEWAY
            log.error(
                "replica %s at %s is a Weft gateway, not an engine: it gets no calls. Name the "
                "engines behind it instead",
                replica.name,
                replica.upstream.authority,
            )
        elif not found and replica.kind is ReplicaKind.GATEWAY:
            replica.kind = ReplicaKind.UNKNOWN
        return found

    async def _learn(self, replica: Replica) -> None:
        """Learn models and kind. Values that cannot be learned now stay unchanged until the next
        check.
        """
        self._unsure.add(replica.name)
        try:
            models = await self._get(replica, "/v1/models")
            self._warn_if_refused(
                replica,
                models.status in (401, 403),
                "api_key",
                f"GET /v1/models: WEFT_REPLICA_API_KEY {self._ours(replica.api_key)}. Calls to "
                "this replica will fail, too",
            )
            if "api_key" in replica.refuses:
                return
            cards = models_of(models.json())
            replica.learn(cards)
            state = await self._get(replica, "/weft/state")
            self._warn_if_refused(
                replica,
                state.status in (401, 403),
                "engine_secret",
                f"GET /weft/state: WEFT_ENGINE_SECRET {self._ours(self.client.secret)}. If the "
                "replica runs Weft's plugin, set the variable to the same value on both sides; "
                "until then the gateway treats the replica as one without the plugin",
            )
            kind = self._kind(replica.name, state, owners(cards))
        except (httpx.HTTPError, ValueError) as failure:
            self._warn_if_unknown(replica, str(failure) or type(failure).__name__)
            return
        if kind is not ReplicaKind.UNKNOWN:
            replica.kind = kind
            weft = kind is ReplicaKind.WEFT
            replica.cache_tokens = 0 if weft else await self._cache_tokens(replica)
            self._warned.discard(replica.name)
            self._unsure.discard(replica.name)
        else:
            self._warn_if_unknown(replica, f"GET /weft/state answered {state.status}")

    async def _cache_tokens(self, replica: Replica) -> int:
        """Return the size of the KV cache that vLLM's metrics report, 0 if they report none. The
        engines behind one address count together.
        """
        try:
            metrics = await self._get(replica, "/metrics")
        except httpx.HTTPError:
            return replica.cache_tokens
        text = metrics.body.decode("utf-8", "replace") if metrics.status == 200 else ""
        sizes = cache_sizes(text)
        if sizes:
            # The engine that takes a call is unknown.
            self.registry.prefixes.room(replica.name, min(sizes))
        return sum(sizes)

    def _kind(self, name: str, state: Fetched, owners: frozenset[str | None]) -> ReplicaKind:
        """Return the kind according to both answers, UNKNOWN if they are inconclusive. Raises
        ValueError if the plugin's answer is malformed.
        """
        if state.status == 200:
            answer = state.json()
            if not runs_plugin(answer):
                raise ValueError("GET /weft/state answered, but not with the plugin's state")
            room = cache_room(answer)
            if room is not None:
                self.registry.prefixes.room(name, room)
            self.registry[name].slots = slots(answer)
            self._set_costs(name, answer)
            return ReplicaKind.WEFT
        if state.status < 500 and "vllm" in owners:
            return ReplicaKind.VLLM
        if state.status in _NO_ROUTE and None not in owners:
            return ReplicaKind.STOCK
        return ReplicaKind.UNKNOWN

    def _set_costs(self, name: str, answer: Any) -> None:
        if runs_plugin(answer):
            self.registry[name].costs = costs = engine_costs(answer)
            if self.costs is not None:
                self.costs(name, costs)

    def _warn_if_unknown(self, replica: Replica, why: str) -> None:
        """Warn once about a replica whose kind is unknown."""
        if replica.kind is ReplicaKind.UNKNOWN and replica.name not in self._warned:
            self._warned.add(replica.name)
            log.warning(
                "replica %s at %s does not identify itself (%s): until it does, the gateway treats "
                "it as vLLM without the plugin and sends a cache salt for each tenant",
                replica.name,
                replica.upstream.authority,
                why,
            )

    def _warn_if_refused(self, replica: Replica, refused: bool, what: str, why: str) -> None:
        """Warn once about a credential that a replica refuses. `replica.refuses` holds it until
        accepted.
        """
        if not refused:
            replica.refuses -= {what}
        elif what not in replica.refuses:
            replica.refuses |= {what}
            authority = replica.upstream.authority
            log.warning("replica %s at %s refuses %s", replica.name, authority, why)

    @staticmethod
    def _ours(value: str) -> str:
        return "differs from the replica's value" if value else "is not set on the gateway"

    async def _get(self, replica: Replica, path: str) -> Fetched:
        return await self.client.fetch(replica, path, self.within_s)
