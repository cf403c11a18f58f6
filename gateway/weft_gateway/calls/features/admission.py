"""Admission to the KV caches of replicas without Weft's plugin: a call that would evict contexts of
other programs waits before it is sent. Engines with the plugin have the order `resident`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass, field
from time import monotonic

from weft_gateway.calls.admission import Gate, Gates, name_of
from weft_gateway.calls.call import PREFILL, Call
from weft_gateway.calls.observers import CallObserver
from weft_gateway.engine.endpoints import Endpoint
from weft_gateway.engine.registry import Registry
from weft_gateway.policies.admission import Claim, Why
from weft_gateway.telemetry.metrics import Metrics
from weft_gateway.tenants import Tenants


@dataclass(slots=True, eq=False)
class AdmissionObserver(CallObserver):
    """Holds calls between their opening and their sending."""

    gates: Gates
    registry: Registry
    tenants: Tenants
    metrics: Metrics
    # A replica may get a new gate while calls are open.
    _gate_of: dict[Claim, Gate] = field(default_factory=dict, init=False)

    def observes(self, endpoint: Endpoint) -> bool:
        """Observe calls that generate text. The gateway's own prefills are advance work."""
        return endpoint.is_text and endpoint is not PREFILL

    def opened(self, call: Call) -> Awaitable[None] | None:
        """Send the call, or hold it."""
        call.claim = None
        cache_tokens = self.registry[call.replica].cache_tokens
        if not cache_tokens:
            return None
        identity, program, placed = call.identity, call.program, call.placed
        assert placed is not None
        tenant = identity.key.tenant
        call.claim = claim = Claim(
            call.id,
            "" if identity.ephemeral else name_of(identity.key),
            program.arrival_s,
            placed.prompt_tokens,
            tenant,
            self.tenants.of(tenant).weight,
            identity.ephemeral or program.calls <= 1,
        )
        gate = self._gate_of[claim] = self.gates.of(call.replica, cache_tokens)
        sent = gate.enter(claim, call.shared_tokens)
        return None if sent is None else self._wait(call, claim, sent, monotonic())

    def streams(self, call: Call) -> None:
        """Time the first byte of a stream."""
        claim = call.claim
        if claim is not None and claim.single:
            self._gate_of[claim].rules.answers(claim, monotonic())

    def closed(self, call: Call) -> None:
        """Release the call's memory."""
        claim, call.claim = call.claim, None
        gate = None if claim is None else self._gate_of.pop(claim, None)
        if claim is None or gate is None:
            return
        usage = call.usage
        prompt, output = (0, 0) if usage is None else (usage.prompt_tokens, usage.output_tokens)
        gate.leave(claim, prompt, output)

    async def _wait(
        self, call: Call, claim: Claim, sent: asyncio.Future[None], begun: float
    ) -> None:
        receipt = call.receipt
        if receipt is not None:
            receipt.memory_tokens, receipt.programs_ahead = claim.tokens, claim.ahead
        try:
            await sent
        finally:
            waited_s = monotonic() - begun
            call.memory_wait_s += waited_s
            if receipt is not None:
                receipt.memory_wait_s = call.memory_wait_s
            self.metrics.memory_wait.labels(call.replica).inc(waited_s)
            self.metrics.memory_waits.labels(call.replica, claim.why or Why.LEFT).inc()
