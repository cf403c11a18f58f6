"""Limits per tenant, shared by all gateways on one Redis. While Redis is away, each gateway applies
them to its own calls.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from typing import Any, Final

from weft_gateway.model.limits import Quota, TenantRules
from weft_gateway.programs.limits import Limiter
from weft_gateway.programs.redis_link import RedisLink
from weft_gateway.programs.table import TableUnavailable

# A gateway's calls in flight count for this long after its last renewal, seconds.
LEASE_S: Final = 120.0


class RedisLimiter(Limiter):
    """See Limiter. One round trip admits a call. Releases and corrections are written off the hot
    path.

    While Redis is away, each gateway applies the limits to its own calls. lease_s: after this time
    without a renewal, a gateway's calls in flight no longer count.
    """

    def __init__(self, link: RedisLink, lease_s: float = LEASE_S) -> None:
        super().__init__()
        self._link = link
        self._lease_s = lease_s
        self._own = os.urandom(6).hex()
        self._script = link.script("limits")
        # The rules of tenants that have calls in flight.
        self._running: dict[str, TenantRules] = {}
        # By tenant: rules, token corrections and ended calls that are not written to Redis yet.
        self._changed: dict[str, tuple[TenantRules, int, int]] = {}
        # Pending admission requests to Redis, by tenant; and tenants whose count in Redis may be
        # wrong.
        self._asking: Counter[str] = Counter()
        self._unsure: set[str] = set()
        self._writer: asyncio.Task[None] | None = None

    async def admit(self, tenant: str, rules: TenantRules, tokens: int) -> Quota:
        """See Limiter."""
        self._asking[tenant] += 1
        # Include ended calls in this request, so that their places are free at once.
        _, pending, ended = self._changed.pop(tenant, (rules, 0, 0))
        if pending:
            self._changed[tenant] = rules, pending, 0
        try:
            quota = await self._ask(tenant, rules, 1, tokens, ended)
        except TableUnavailable:
            self._unsure.add(tenant)
            self._changed.setdefault(tenant, (rules, 0, 0))
            return await self._admit_alone(tenant, rules, tokens)
        except BaseException:
            # Redis may have counted the call.
            self._unsure.add(tenant)
            self._write(tenant, rules)
            raise
        finally:
            self._asking[tenant] -= 1
            if not self._asking[tenant]:
                del self._asking[tenant]
        if not quota.refused:
            self._count(tenant, rules, 1)
        return quota

    async def _admit_alone(self, tenant: str, rules: TenantRules, tokens: int) -> Quota:
        quota = await super().admit(tenant, rules, tokens)
        if not quota.refused:
            self._unsure.add(tenant)
            self._running[tenant] = rules
        return quota

    def release(self, tenant: str, rules: TenantRules) -> None:
        """See Limiter."""
        self._count(tenant, rules, -1)
        if rules.calls_in_flight:
            self._write(tenant, rules, ended=1)

    def correct(self, tenant: str, rules: TenantRules, tokens: int) -> None:
        """See Limiter."""
        if rules.tokens_per_minute and tokens:
            super().correct(tenant, rules, tokens)
            self._write(tenant, rules, tokens=tokens)

    async def refresh(self) -> None:
        """See Limiter."""
        for tenant, rules in self._running.items():
            if rules.calls_in_flight:
                self._unsure.add(tenant)
                self._write(tenant, rules)
        self._write_soon()

    async def aclose(self) -> None:
        """See Limiter. Waits at most one second for the writer, then drops pending changes."""
        if self._writer is not None:
            await asyncio.wait((self._writer,), timeout=1.0)
            self._writer.cancel()

    def _count(self, tenant: str, rules: TenantRules, change: int) -> None:
        self.count(tenant, change)
        if self.in_flight(tenant):
            self._running[tenant] = rules
        else:
            self._running.pop(tenant, None)

    async def _ask(
        self, tenant: str, rules: TenantRules, requests: int, tokens: int, ended: int = 0
    ) -> Quota:
        own: int | str = ""
        if not requests and tenant in self._unsure and tenant not in self._asking:
            self._unsure.discard(tenant)
            own, ended = self.in_flight(tenant), 0
        arguments: list[Any] = [
            rules.requests_per_minute, rules.tokens_per_minute, rules.calls_in_flight,
            requests, tokens, self._own, ended, self._lease_s, own,
        ]  # fmt: skip
        async with self._link.reaching():
            key = self._link.keys.base + b"limit:" + tenant.encode()
            refused, wait, requests_left, tokens_left = await self._script([key], arguments)
        return Quota(refused.decode(), float(wait), float(requests_left), float(tokens_left))

    def _write(self, tenant: str, rules: TenantRules, tokens: int = 0, ended: int = 0) -> None:
        _, known_tokens, known_ended = self._changed.get(tenant, (rules, 0, 0))
        self._changed[tenant] = rules, known_tokens + tokens, known_ended + ended
        self._write_soon()

    def _write_soon(self) -> None:
        # While Redis is away, changes wait for the next refresh.
        if not self._changed or self._link.away:
            return
        if self._writer is None or self._writer.done():
            self._writer = asyncio.get_running_loop().create_task(self._write_all())

    async def _write_all(self) -> None:
        while self._changed:
            tenant, (rules, tokens, ended) = self._changed.popitem()
            try:
                await self._ask(tenant, rules, 0, tokens, ended)
            except TableUnavailable:
                # The next refresh writes the count. Tokens of an outage are dropped.
                self._unsure.add(tenant)
                self._changed.setdefault(tenant, (rules, 0, 0))
                return
