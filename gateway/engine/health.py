"""Health checks: is a replica up, what does it serve, does it run our plugin. Cold: httpx."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

import httpx

from gateway.engine.lower import ReplicaKind
from gateway.engine.registry import Registry, Replica

log = logging.getLogger(__name__)

SECRET_HEADER: Final = "x-weft-secret"
# What a replica serves changes rarely (LoRA adapters): it is asked again every so many checks.
_LEARN_EVERY: Final = 15


class HealthLoop:
    """Checks every replica each `interval_s` seconds, and sooner when one is suspected."""

    def __init__(
        self, registry: Registry, client: httpx.AsyncClient, interval_s: float, secret: str = ""
    ) -> None:
        self._registry = registry
        self._client = client
        self._interval_s = interval_s
        self._secret = secret
        self._round = 0
        # Replicas that could not be asked everything.
        self._unsure: set[str] = set()

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
        error, sure = "health_check", True
        try:
            # A server without /health answers 404, and is up.
            good = (await self._get(replica, "/health")).status_code < 500
        except httpx.HTTPError as failure:
            good, error = False, f"health_check: {type(failure).__name__}"
            sure = not isinstance(failure, httpx.TimeoutException)
        if good and (learn or not before.healthy or replica.name in self._unsure):
            await self._learn(replica)
        replica.circuit = replica.circuit.checked(good, error, sure=sure)
        if replica.circuit.healthy != before.healthy:
            if good:
                log.info("replica %s is up", replica.name)
            else:
                log.warning("replica %s is down (%s)", replica.name, error)
            # Who comes back may be another process, with an empty cache.
            self._registry.beginnings.forget(replica.name)

    async def _learn(self, replica: Replica) -> None:
        """Models and kind. What cannot be learned now stays as it was, and is asked again."""
        self._unsure.add(replica.name)
        try:
            models = await self._get(replica, "/v1/models")
            self._tell_if_refused(
                replica,
                models.status_code in (401, 403),
                "api_key",
                f"GET /v1/models: WEFT_REPLICA_API_KEY {self._ours(replica.api_key)}. It will "
                "refuse calls, too",
            )
            if "api_key" in replica.refuses:
                return
            cards = models.json()["data"]
            replica.learn([card for card in cards if isinstance(card, dict)])
            state = await self._get(replica, "/weft/state", secret_headers(replica, self._secret))
            self._tell_if_refused(
                replica,
                state.status_code in (401, 403),
                "engine_secret",
                f"GET /weft/state: WEFT_ENGINE_SECRET {self._ours(self._secret)}. If Weft's plugin "
                "runs there, set the variable to one value for it and for the gateway; until then "
                "the replica is used as one without the plugin",
            )
            if state.status_code == 200 and "weft" in state.json():
                replica.kind = ReplicaKind.WEFT
                self._learn_room(replica.name, state.json().get("engines"))
            elif state.status_code < 500:
                vllm = any(card.get("owned_by") == "vllm" for card in replica.models.values())
                replica.kind = ReplicaKind.VLLM if vllm else ReplicaKind.STOCK
            else:
                return
        except (httpx.HTTPError, ValueError, LookupError, TypeError):
            return
        self._unsure.discard(replica.name)

    def _learn_room(self, name: str, engines: object) -> None:
        """What its prefix cache has room for. Of several engines behind one server nobody knows
        which takes a call, so only what each of them can hold counts."""
        told = engines if isinstance(engines, list) else []
        rooms = [
            engine["cache_tokens"]
            for engine in told
            if isinstance(engine, dict) and isinstance(engine.get("cache_tokens"), int)
        ]
        if rooms:
            self._registry.beginnings.room(name, max(0, min(rooms)))

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
    ) -> httpx.Response:
        headers = headers or secret_headers(replica, "")
        return await self._client.get(f"{replica.url}{path}", headers=headers)


def secret_headers(replica: Replica, secret: str) -> dict[str, str]:
    """What proves to a replica that the gateway asks."""
    headers = {SECRET_HEADER: secret} if secret else {}
    if replica.api_key:
        headers["authorization"] = f"Bearer {replica.api_key}"
    return headers
