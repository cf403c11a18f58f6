"""Health checks: is a replica up, what does it serve, does it run our plugin. Cold: httpx."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

import httpx

from weft_gateway.engine.described import cache_room, models_of, owners, runs_plugin
from weft_gateway.engine.engine_request import ReplicaKind
from weft_gateway.engine.fetch import Fetched, fetch
from weft_gateway.engine.registry import Registry, Replica

log = logging.getLogger(__name__)

SECRET_HEADER: Final = "x-weft-secret"
# What a replica serves changes rarely (LoRA adapters): it is asked again every so many checks.
_LEARN_EVERY: Final = 15
# How a server says that it has no /weft/state.
_NO_ROUTE: Final = (404, 405, 501)


class HealthLoop:
    """Checks every replica each `interval_s` seconds, and sooner when one is suspected."""

    def __init__(
        self,
        registry: Registry,
        client: httpx.AsyncClient,
        interval_s: float,
        secret: str = "",
        within_s: float = 5.0,
    ) -> None:
        """within_s: what any one answer may take, from the connection to its last byte."""
        self._registry = registry
        self._client = client
        self._interval_s = interval_s
        self._secret = secret
        self._within_s = within_s
        self._round = 0
        # Replicas that could not be asked everything.
        self._unsure: set[str] = set()
        # Replicas of which the log says that their kind is not known.
        self._warned: set[str] = set()

    async def run(self) -> None:
        """Check until cancelled."""
        suspicion = self._registry.suspicion
        while True:
            try:
                await asyncio.wait_for(suspicion.wait(), self._interval_s)
                # One check for a burst of failures, and never a tight loop.
                await asyncio.sleep(min(0.2, self._interval_s))
            except TimeoutError:
                pass
            suspicion.clear()
            await self.check_all()

    async def check_all(self) -> None:
        """One round over all replicas, at once. Never raises."""
        learn = self._round % _LEARN_EVERY == 0
        self._round += 1
        await asyncio.gather(*(self._check(replica, learn) for replica in self._registry))

    async def _check(self, replica: Replica, learn: bool) -> None:
        before = replica.circuit
        error, sure, gone = "health_check", True, False
        try:
            status = (await self._get(replica, "/health")).status
            # A server without /health answers 404, and is up.
            good = status < 500
            # So vLLM says that its engine process has died. Others say 503 when they are busy.
            gone = status == 503 and replica.kind in (ReplicaKind.WEFT, ReplicaKind.VLLM)
        except httpx.HTTPError as failure:
            good, error = False, f"health_check: {type(failure).__name__}"
            sure = not isinstance(failure, httpx.TimeoutException)
            gone = isinstance(failure, httpx.ConnectError)
        if gone:
            replica.upstream.seems_gone(asyncio.get_running_loop().time())
        else:
            replica.upstream.is_there()
        if good and (learn or not before.healthy or replica.name in self._unsure):
            await self._learn(replica)
        replica.circuit = replica.circuit.checked(good, error, sure=sure, gone=gone)
        if replica.circuit.healthy != before.healthy:
            if good:
                log.info("replica %s is up", replica.name)
            else:
                log.warning("replica %s is down (%s)", replica.name, error)
            # Who comes back may be another process, with an empty cache.
            self._registry.prefixes.forget(replica.name)
        if before.alive and not replica.circuit.alive and replica.kind is ReplicaKind.STOCK:
            # It may be vLLM, and tenants' salts must not be left out until that is known.
            replica.kind = ReplicaKind.UNKNOWN

    async def _learn(self, replica: Replica) -> None:
        """Models and kind. What cannot be learned now stays as it was, and is asked again."""
        self._unsure.add(replica.name)
        try:
            models = await self._get(replica, "/v1/models")
            self._tell_if_refused(
                replica,
                models.status in (401, 403),
                "api_key",
                f"GET /v1/models: WEFT_REPLICA_API_KEY {self._ours(replica.api_key)}. It will "
                "refuse calls, too",
            )
            if "api_key" in replica.refuses:
                return
            cards = models_of(models.json())
            replica.learn(cards)
            state = await self._get(replica, "/weft/state", secret_headers(replica, self._secret))
            self._tell_if_refused(
                replica,
                state.status in (401, 403),
                "engine_secret",
                f"GET /weft/state: WEFT_ENGINE_SECRET {self._ours(self._secret)}. If Weft's plugin "
                "runs there, set the variable to one value for it and for the gateway; until then "
                "the replica is used as one without the plugin",
            )
            kind = self._kind(replica.name, state, owners(cards))
        except (httpx.HTTPError, ValueError) as failure:
            self._tell_if_unknown(replica, str(failure) or type(failure).__name__)
            return
        if kind is not ReplicaKind.UNKNOWN:
            replica.kind = kind
            self._warned.discard(replica.name)
            self._unsure.discard(replica.name)
        else:
            self._tell_if_unknown(replica, f"GET /weft/state answered {state.status}")

    def _kind(self, name: str, state: Fetched, owners: frozenset[str | None]) -> ReplicaKind:
        """What runs there, by both answers; UNKNOWN where they do not tell. ValueError where the
        plugin's own answer is malformed."""
        if state.status == 200:
            answer = state.json()
            if not runs_plugin(answer):
                raise ValueError("GET /weft/state answered something else than the plugin does")
            room = cache_room(answer)
            if room is not None:
                self._registry.prefixes.room(name, room)
            return ReplicaKind.WEFT
        if state.status < 500 and "vllm" in owners:
            return ReplicaKind.VLLM
        if state.status in _NO_ROUTE and None not in owners:
            return ReplicaKind.STOCK
        return ReplicaKind.UNKNOWN

    def _tell_if_unknown(self, replica: Replica, why: str) -> None:
        """Warn once of a replica that may be vLLM, and may not."""
        if replica.kind is ReplicaKind.UNKNOWN and replica.name not in self._warned:
            self._warned.add(replica.name)
            log.warning(
                "replica %s at %s does not tell what it is (%s): until it does, it is used as vLLM "
                "without the plugin, and gets a cache salt for each tenant",
                replica.name,
                replica.upstream.authority,
                why,
            )

    def _tell_if_refused(self, replica: Replica, refused: bool, what: str, why: str) -> None:
        """Warn once of what a replica does not take; it is in its state as long as that is so."""
        if not refused:
            replica.refuses -= {what}
        elif what not in replica.refuses:
            replica.refuses |= {what}
            authority = replica.upstream.authority
            log.warning("replica %s at %s refuses %s", replica.name, authority, why)

    @staticmethod
    def _ours(value: str) -> str:
        return "is another one here" if value else "is not set here"

    async def _get(
        self, replica: Replica, path: str, headers: dict[str, str] | None = None
    ) -> Fetched:
        headers = headers or secret_headers(replica, "")
        return await fetch(self._client, f"{replica.url}{path}", headers, self._within_s)


def secret_headers(replica: Replica, secret: str) -> dict[str, str]:
    """What proves to a replica that the gateway asks."""
    headers = {SECRET_HEADER: secret} if secret else {}
    if replica.api_key:
        headers["authorization"] = f"Bearer {replica.api_key}"
    return headers
