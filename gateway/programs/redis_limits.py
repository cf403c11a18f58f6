"""Limits per tenant that all gateways on one Redis share; each gateway's own while it is away."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any, Final

from gateway.model.limits import Quota, TenantRules
from gateway.programs.limits import MemoryLimiter
from gateway.programs.redis_link import RedisLink
from gateway.programs.table import TableUnavailable

# A gateway's calls in flight count for so long after it last said so.
LEASE_S: Final = 120.0


class RedisLimiter:
    """See Limiter. One round trip admits a call; releases and corrections are written off the hot
    path.

    away: whether Redis is known not to answer. Each gateway then applies the limits to its own
    calls. lease_s: the calls in flight of a gateway that stops renewing them count for so long.
    """

    def __init__(self, link: RedisLink, away: Callable[[], bool], lease_s: float = LEASE_S) -> None:
        self._link = link
        self._away = away
        self._lease_s = lease_s
        self._own = os.urandom(6).hex()
        self._local = MemoryLimiter()
        self._script = link.script("limits")
        # Tenants whose counts other gateways do not have yet, and corrections of their tokens.
        self._changed: dict[str, tuple[TenantRules, int]] = {}
        self._rules: dict[str, TenantRules] = {}
        self._writer: asyncio.Task[None] | None = None

    async def admit(self, tenant: str, rules: TenantRules, tokens: int) -> Quota:
        """See Limiter."""
        if self._away():
            return self._local.decide(tenant, rules, tokens)
        # Counted before the round trip, so that two calls at once do not both see the last place.
        self._count(tenant, rules)
        try:
            own = self._local.in_flight(tenant) - 1
            quota = await self._ask(tenant, rules, 1, tokens, own)
        except TableUnavailable:
            self._local.release(tenant, rules)
            return self._local.decide(tenant, rules, tokens)
        except BaseException:
            self.release(tenant, rules)
            raise
        if quota.refused:
            self._local.release(tenant, rules)
        return quota

    def release(self, tenant: str, rules: TenantRules) -> None:
        """See Limiter."""
        self._local.release(tenant, rules)
        if not self._local.in_flight(tenant):
            self._rules.pop(tenant, None)
        if rules.calls_in_flight:
            self._write(tenant, rules, 0)

    def correct(self, tenant: str, rules: TenantRules, tokens: int) -> None:
        """See Limiter."""
        if rules.tokens_per_minute and tokens:
            self._local.correct(tenant, rules, tokens)
            self._write(tenant, rules, tokens)

    async def refresh(self) -> None:
        """See Limiter."""
        for tenant, rules in self._rules.items():
            self._write(tenant, rules, 0)

    async def aclose(self) -> None:
        """See Limiter. What is not written yet is given up after a second."""
        if self._writer is not None:
            await asyncio.wait((self._writer,), timeout=1.0)
            self._writer.cancel()
        await self._link.aclose()

    def _count(self, tenant: str, rules: TenantRules) -> None:
        self._local.decide(tenant, TenantRules(), 0)
        if rules.calls_in_flight:
            self._rules[tenant] = rules

    async def _ask(
        self, tenant: str, rules: TenantRules, requests: int, tokens: int, own: int
    ) -> Quota:
        arguments: list[Any] = [
            rules.requests_per_minute, rules.tokens_per_minute, rules.calls_in_flight,
            requests, tokens, self._own, own, self._lease_s,
        ]  # fmt: skip
        async with self._link.reaching():
            key = self._link.keys.base + b"limit:" + tenant.encode()
            refused, wait, requests_left, tokens_left = await self._script([key], arguments)
        return Quota(refused.decode(), float(wait), float(requests_left), float(tokens_left))

    def _write(self, tenant: str, rules: TenantRules, tokens: int) -> None:
        _, known = self._changed.get(tenant, (rules, 0))
        self._changed[tenant] = rules, known + tokens
        if self._writer is None or self._writer.done():
            self._writer = asyncio.get_running_loop().create_task(self._write_all())

    async def _write_all(self) -> None:
        while self._changed:
            tenant, (rules, tokens) = self._changed.popitem()
            if self._away():
                continue
            try:
                await self._ask(tenant, rules, 0, tokens, self._local.in_flight(tenant))
            except TableUnavailable:
                # The next change writes the count again; this correction of tokens is dropped.
                continue
