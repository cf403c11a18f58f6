"""Limits per tenant, in this process's memory."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from weft_gateway.model.limits import Quota, TenantRules
from weft_gateway.policies.token_bucket import Bucket, refilled, wait_s

REQUESTS: Final = "requests_per_minute"
TOKENS: Final = "tokens_per_minute"
IN_FLIGHT: Final = "calls_in_flight"
# Tenants with stored buckets. A dropped bucket counts as full.
_MOST_TENANTS: Final = 65_536


class Limiter:
    """Counts each tenant's usage and refuses calls above its limits: those of one gateway process.
    clock: monotonic seconds.

    Contract: `admit` takes from all limits or from none.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, most_tenants: int = _MOST_TENANTS
    ) -> None:
        self._clock = clock
        self._most_tenants = most_tenants
        self._requests: OrderedDict[str, Bucket] = OrderedDict()
        self._tokens: OrderedDict[str, Bucket] = OrderedDict()
        self._in_flight: dict[str, int] = {}

    async def admit(self, tenant: str, rules: TenantRules, tokens: int) -> Quota:
        """Try to admit a call with a prompt of about `tokens` tokens. An admitted call is in flight
        until `release`.
        """
        now_s = self._clock()
        requests, of_tokens = rules.requests_per_minute, rules.tokens_per_minute
        requests_left = refilled(self._requests.get(tenant), requests, now_s)
        tokens_left = refilled(self._tokens.get(tenant), of_tokens, now_s)
        levels = requests_left.level, tokens_left.level
        in_flight = self._in_flight.get(tenant, 0)
        if rules.calls_in_flight and in_flight >= rules.calls_in_flight:
            return Quota(IN_FLIGHT, 0.0, *levels)
        if requests and (wait := wait_s(requests_left, 1.0, requests)):
            return Quota(REQUESTS, wait, *levels)
        if of_tokens and (wait := wait_s(tokens_left, float(tokens), of_tokens)):
            return Quota(TOKENS, wait, *levels)
        if requests:
            requests_left = Bucket(requests_left.level - 1.0, now_s)
            self._keep(self._requests, tenant, requests_left)
        if of_tokens:
            tokens_left = Bucket(tokens_left.level - tokens, now_s)
            self._keep(self._tokens, tenant, tokens_left)
        self._in_flight[tenant] = in_flight + 1
        return Quota("", 0.0, requests_left.level, tokens_left.level)

    def release(self, tenant: str, rules: TenantRules) -> None:
        """End an admitted call."""
        self.count(tenant, -1)

    def count(self, tenant: str, change: int) -> None:
        """Add `change` to a tenant's calls in flight."""
        left = self._in_flight.get(tenant, 0) + change
        if left > 0:
            self._in_flight[tenant] = left
        else:
            self._in_flight.pop(tenant, None)

    def correct(self, tenant: str, rules: TenantRules, tokens: int) -> None:
        """Add `tokens` to an admitted call's estimate; negative if the call used fewer."""
        if rules.tokens_per_minute and tokens:
            now_s = self._clock()
            bucket = refilled(self._tokens.get(tenant), rules.tokens_per_minute, now_s)
            self._keep(self._tokens, tenant, Bucket(bucket.level - tokens, now_s))

    def in_flight(self, tenant: str) -> int:
        """Return a tenant's calls admitted by this gateway that have not ended."""
        return self._in_flight.get(tenant, 0)

    async def refresh(self) -> None:
        """Renew this gateway's counts for other gateways. Call it at least once per minute."""

    async def aclose(self) -> None:
        """Write pending changes."""

    def _keep(self, buckets: OrderedDict[str, Bucket], tenant: str, bucket: Bucket) -> None:
        buckets[tenant] = bucket
        buckets.move_to_end(tenant)
        if len(buckets) > self._most_tenants:
            buckets.popitem(last=False)
