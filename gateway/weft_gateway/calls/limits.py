"""Applies the limits per API key to calls: 429 with OpenAI's rate-limit headers."""

from __future__ import annotations

import contextlib
import math
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

from weft_gateway.errors import ApiError
from weft_gateway.model.limits import Quota, TenantRules
from weft_gateway.policies.token_bucket import MINUTE_S
from weft_gateway.programs.limits import IN_FLIGHT, REQUESTS, TOKENS, Limiter
from weft_gateway.tenants import Tenants

Headers = tuple[tuple[bytes, bytes], ...]

# A call in flight may end at any moment.
_RETRY_IN_FLIGHT_S: Final = 1
_WHAT: Final = {REQUESTS: "requests per minute", TOKENS: "tokens per minute"}


@dataclass(slots=True)
class Admitted:
    """A call that counts against its tenant's limits until it is released. tokens: the estimate of
    its prompt. headers: for its answer.
    """

    tenant: str
    rules: TenantRules
    tokens: int
    headers: Headers


class OverLimit(ApiError):
    """429: a call is over a limit of its tenant. wait_s: until it can be admitted, as far as known;
    0 if another call has to end.
    """

    wait_s = 0.0

    def again(self) -> OverLimit:
        """Return a copy for another call."""
        copy = OverLimit(self.status, self.code, self.message, headers=self.headers)
        copy.wait_s = self.wait_s
        return copy


class TenantLimits:
    """Admits calls under the limits of their tenants."""

    def __init__(self, tenants: Tenants, limiter: Limiter) -> None:
        self._tenants = tenants
        self._limiter = limiter

    async def admit(self, tenant: str, tokens: int) -> Admitted | None:
        """Admit a call with a prompt of about `tokens` tokens. None for a tenant without limits.
        Raises OverLimit without counting the call.
        """
        rules = self._tenants.of(tenant)
        if not rules.limited:
            return None
        quota = await self._limiter.admit(tenant, rules, tokens)
        headers = _headers(rules, quota)
        if quota.refused:
            raise _refusal(rules, quota, tokens, headers)
        return Admitted(tenant, rules, tokens, headers)

    @contextlib.asynccontextmanager
    async def admitted(self, tenant: str, tokens: int) -> AsyncIterator[None]:
        """Admit a request for as long as the context lasts. Raises ApiError 429."""
        admitted = await self.admit(tenant, tokens)
        try:
            yield
        finally:
            if admitted is not None:
                self.release(admitted)

    def release(self, admitted: Admitted) -> None:
        """Release an ended call."""
        self._limiter.release(admitted.tenant, admitted.rules)

    def used(self, admitted: Admitted, tokens: int) -> None:
        """Correct the estimate by the engine's count of prompt and output tokens."""
        self._limiter.correct(admitted.tenant, admitted.rules, tokens - admitted.tokens)


def _refusal(rules: TenantRules, quota: Quota, tokens: int, headers: Headers) -> OverLimit:
    if quota.refused == IN_FLIGHT:
        limit = rules.calls_in_flight
        what, retry_s = f"calls in flight: limit {limit}", _RETRY_IN_FLIGHT_S
    else:
        limit = getattr(rules, quota.refused)
        wanted = tokens if quota.refused == TOKENS else 1
        retry_s = max(1, math.ceil(quota.wait_s))
        what = f"{_WHAT[quota.refused]}: limit {limit}, requested {wanted}"
    refusal = OverLimit(
        429,
        "rate_limit_exceeded",
        f"Rate limit reached on {what}. Please try again in {retry_s} s.",
        headers=headers,
        retry_after_s=retry_s,
    )
    refusal.wait_s = quota.wait_s
    return refusal


def _headers(rules: TenantRules, quota: Quota) -> Headers:
    """Return OpenAI's headers: the limit, the rest of it, and the time until it is full."""
    found: list[tuple[bytes, bytes]] = []
    for name, limit, left in (
        (b"requests", rules.requests_per_minute, quota.requests_left),
        (b"tokens", rules.tokens_per_minute, quota.tokens_left),
    ):
        if limit:
            reset_s = max(0.0, limit - left) * MINUTE_S / limit
            found += (
                (b"x-ratelimit-limit-" + name, str(limit).encode()),
                (b"x-ratelimit-remaining-" + name, str(max(0, math.floor(left))).encode()),
                (b"x-ratelimit-reset-" + name, _duration(reset_s).encode()),
            )
    return tuple(found)


def _duration(seconds: float) -> str:
    """Format a duration like OpenAI: 17ms, 1.5s, 6m0s."""
    if seconds < 1:
        return f"{math.ceil(seconds * 1000)}ms"
    minutes, rest = divmod(round(seconds, 3), 60)
    return f"{minutes:.0f}m{rest:g}s" if minutes else f"{rest:g}s"
