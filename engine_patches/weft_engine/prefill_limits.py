"""Limits on the prompt tokens per tenant and step. Pure.

A step with prefill takes longer for every call in it. While other tenants run, the prefill of a
tenant therefore adds, per weight, no more time to a step than each other tenant's calls take in it
anyway. The costs of steps are learned from past steps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, NamedTuple

from weft_engine.tenant_shares import TenantShares

# While tenants contend, one step in this many has no prefill, or little if nothing decodes, to
# measure its duration; one in _MEASURE_FIRST until a first step has run.
_MEASURE_EVERY: Final = 16
_MEASURE_FIRST: Final = 2


class Step(NamedTuple):
    """The engine's next step.

    prefilling: the prompt tokens that running sequences still have to compute. decoding: running
    sequences whose prompt is computed. slots: free slots. budget: prompt tokens that the step can
    compute in total. longest: tokens of the longest step. free: tokens that fit into free KV
    blocks.
    """

    prefilling: Mapping[str, int]
    decoding: int
    slots: int
    budget: int
    longest: int
    free: int


class PrefillLimits:
    """The limits of one step. block: tokens of a KV block, the minimum for a tenant. rivals:
    weights of the protected tenants. measuring: the step computes no prompt, or one block per
    sequence if nothing decodes."""

    def __init__(
        self,
        shares: TenantShares,
        step: Step,
        block: int,
        rivals: Mapping[str, float],
        measuring: bool,
    ) -> None:
        self._shares, self._step, self._block = shares, step, block
        self._measuring = measuring
        self._left: dict[str, int] = {}
        self._prefilling: dict[str, int] = {}
        for sequence, tokens in step.prefilling.items():
            tenant = shares.tenant_of(sequence)
            self._prefilling[tenant] = self._prefilling.get(tenant, 0) + tokens
        self._weights = sum(shares.weight(tenant) for tenant in self._prefilling)
        # The tenant that is admitted next gets a share of the budget and counts as a rival.
        self._following = shares.next({}, set(self._prefilling)) if step.slots > 0 else None
        if self._following is not None:
            self._weights += shares.weight(self._following)
            rivals = {**rivals, self._following: shares.weight(self._following)}
        # The part of the step that each rival's calls take, in prompt tokens per weight. The two
        # smallest suffice: a tenant is not its own rival.
        base = self._base()
        self._least = sorted(
            ((base + self._prefilling.get(name, 0)) / weight, name)
            for name, weight in rivals.items()
        )[:2]

    def left(self, sequence: str, running: bool, tokens: int) -> int:
        """Return how many of these prompt tokens the sequence may compute in this step. running: it
        was already in the batch."""
        if self._measuring:
            # A step with decodes needs no prefill to be measured.
            return 0 if self._step.decoding else min(tokens, self._block)
        tenant = self._shares.tenant_of(sequence)
        left = self._left.get(tenant)
        if left is None:
            left = self._left[tenant] = self._allowed(tenant)
        if running:
            # One block is reserved for a call that is admitted in this step.
            kept = self._block if self._shares.waiting_of(tenant) else 0
            return min(tokens, max(0, left - kept))
        # The tenant's earlier prompts get their blocks first, so that none is preempted for a later
        # one.
        ahead = self._prefilling.get(tenant, 0)
        return min(tokens, left) if not ahead or tokens <= self._step.free - ahead else 0

    def take(self, sequence: str, running: bool, tokens: int, of: int) -> None:
        """Record that a sequence computes `tokens` prompt tokens. of: the prompt tokens that it
        lacks."""
        tenant = self._shares.tenant_of(sequence)
        self._left[tenant] = max(0, self._left.get(tenant, 0) - tokens)
        if not running:
            self._prefilling[tenant] = self._prefilling.get(tenant, 0) + of

    def _base(self) -> float:
        """Return the duration of a step without prefill, in prompt tokens. Infinite if the cost of
        prefill is unknown: then only the budget is divided. 0 if no such step has run but sequences
        decode, which protects them as well as possible."""
        cost = self._shares.cost
        if not cost.token_s:
            return math.inf
        if self._step.decoding and not cost.measured:
            return 0.0
        return cost.base_s / cost.token_s

    def _allowed(self, tenant: str) -> int:
        weight = self._shares.weight(tenant)
        counted = tenant in self._prefilling or tenant == self._following
        allowed = self._step.budget * weight / (self._weights + (0.0 if counted else weight))
        for least, name in self._least:
            if name != tenant:
                allowed = min(allowed, least * weight)
                break
        blocks = 2 if self._shares.waiting_of(tenant) else 1
        return max(int(allowed), blocks * self._block)


class PrefillPacing:
    """Decides before each step whether prefill is limited. block: as in PrefillLimits."""

    def __init__(self, shares: TenantShares, block: int) -> None:
        self._shares = shares
        self._block = block
        self._steps = 0

    def limits(self, step: Step) -> PrefillLimits | None:
        """Return the limits of the next step; None if a tenant may use all of it.

        A tenant that was idle for less than the duration of the longest step is still a rival: its
        next call could arrive during such a step and would wait for its end.
        """
        shares, cost = self._shares, self._shares.cost
        within_s = cost.base_s + cost.token_s * step.longest
        if not (shares.contended or shares.left_within(within_s)):
            return None
        self._steps += 1
        every = _MEASURE_EVERY if cost.base_s else _MEASURE_FIRST
        measuring = self._steps % every == 0 and (step.decoding > 0 or not cost.measured)
        return PrefillLimits(shares, step, self._block, shares.rivals(within_s), measuring)
