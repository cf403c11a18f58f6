"""Admission to the KV caches of replicas without Weft's plugin: a call that would evict contexts of
other programs waits before it is sent. Engines with the plugin have the order `resident`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final

from weft_gateway.calls.call import PREFILL, Call, Tap
from weft_gateway.calls.observers import CallObserver
from weft_gateway.calls.placement import PromptCounter
from weft_gateway.engine.endpoints import Endpoint
from weft_gateway.engine.registry import Registry
from weft_gateway.model import Outcome, ProgramKey
from weft_gateway.policies.admission import Admission, Claim, Why
from weft_gateway.telemetry.metrics import Metrics
from weft_gateway.tenants import Tenants

# An answer ends with its usage. Quotes in the model's text are escaped, so it cannot contain these.
_USAGE_BYTES: Final = 4096
_PROMPT: Final = re.compile(rb'"(?:prompt|input)_tokens"\s*:\s*(\d{1,9})\b')
_OUTPUT: Final = re.compile(rb'"(?:completion|output)_tokens"\s*:\s*(\d{1,9})\b')


@dataclass(slots=True, eq=False)
class _Gate:
    """The admission of one replica. size: of its cache, as it reported it. waiting: by call. timer:
    runs at `rules.due`.
    """

    size: int
    rules: Admission
    waiting: dict[str, asyncio.Future[None]] = field(default_factory=dict)
    timer: asyncio.TimerHandle | None = None

    def admit(self) -> None:
        """Send the held calls that fit now."""
        if not self.rules.held and self.timer is None:
            return
        now = monotonic()
        for claim in self.rules.admit(now):
            future = self.waiting.pop(claim.call)
            if not future.done():
                future.set_result(None)
        self.set_timer(now)

    def set_timer(self, now: float) -> None:
        """Admit again when the next call is due."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        if self.rules.held:
            delay_s = max(0.0, self.rules.due - now)
            self.timer = asyncio.get_running_loop().call_later(delay_s, self.admit)


class AdmissionObserver(CallObserver):
    """Holds calls between their opening and their sending.

    gateways: the number of gateways that send calls to the replicas. Each uses an equal part of
    each cache.
    """

    def __init__(
        self,
        registry: Registry,
        tenants: Tenants,
        counter: PromptCounter,
        metrics: Metrics,
        gateways: Callable[[], int],
        wait_s: float,
    ) -> None:
        self._registry = registry
        self._tenants = tenants
        self._counter = counter
        self._metrics = metrics
        self._gateways = gateways
        self._wait_s = wait_s
        self._gates: dict[str, _Gate] = {}
        # The gate of each call: a gate is replaced when the size changes.
        self._of: dict[Claim, _Gate] = {}

    def observes(self, endpoint: Endpoint) -> bool:
        """Observe calls that generate text. The gateway's own prefills are advance work."""
        return endpoint.is_text and endpoint is not PREFILL

    def opened(self, call: Call) -> Awaitable[None] | None:
        """Admit the call, or hold it."""
        call.claim = None
        replica = self._registry[call.replica]
        if not replica.cache_tokens:
            return None
        gate = self._gate(call.replica, replica.cache_tokens // max(1, self._gateways()))
        identity, program, placed = call.identity, call.program, call.placed
        assert placed is not None
        tenant = identity.key.tenant
        call.claim = claim = Claim(
            call.id,
            "" if identity.ephemeral else _name(identity.key),
            program.arrival_s,
            placed.prompt_tokens,
            tenant,
            self._tenants.of(tenant).weight,
            identity.ephemeral or program.calls <= 1,
        )
        self._of[claim] = gate
        now = monotonic()
        if gate.rules.enter(claim, now, call.shared_tokens):
            return None
        # Another call may end before the wait begins.
        gate.waiting[claim.call] = future = asyncio.get_running_loop().create_future()
        gate.set_timer(now)
        return self._held(call, claim, future, now)

    def head(self, call: Call) -> Tap | None:
        """Keep the end of a stream, if it may have the usage."""
        claim = call.claim
        if claim is None or not call.is_stream or not _reports_usage(call):
            return None

        def tap(data: bytes) -> bytes:
            claim.tail = claim.tail[1], data
            return data

        return tap

    def closed(self, call: Call) -> None:
        """Release the call's memory, and learn the length of its prompt."""
        claim, call.claim = call.claim, None
        gate = None if claim is None else self._of.pop(claim, None)
        if claim is None or gate is None:
            return
        prompt, output = _usage(call, claim)
        gate.waiting.pop(claim.call, None)
        gate.rules.leave(claim, monotonic(), prompt + output)
        gate.admit()
        if prompt and call.outcome is Outcome.OK and call.report is None:
            self._counter.learn(call, prompt)

    def program_ended(self, key: ProgramKey) -> None:
        """A program has ended: its place is free."""
        for gate in self._gates.values():
            gate.rules.end(_name(key))
            gate.admit()

    def state(self) -> dict[str, dict[str, Any]]:
        """Return the state of each replica with admission, for administrators."""
        return {
            name: {
                "cache_tokens": gate.rules.tokens,
                "residents": gate.rules.residents,
                "kept_tokens": gate.rules.kept_tokens,
                "held": len(gate.rules.held),
                "violations": gate.rules.violations(),
            }
            for name, gate in self._gates.items()
        }

    def _gate(self, name: str, size: int) -> _Gate:
        gate = self._gates.get(name)
        if gate is None or gate.size != size:
            # Calls of the old gate leave through it.
            gate = self._gates[name] = _Gate(size, Admission(size, self._wait_s))
        return gate

    async def _held(
        self, call: Call, claim: Claim, future: asyncio.Future[None], begun: float
    ) -> None:
        receipt = call.receipt
        if receipt is not None:
            receipt.memory_tokens, receipt.programs_ahead = claim.tokens, claim.ahead
        try:
            await future
        finally:
            waited_s = monotonic() - begun
            call.memory_wait_s += waited_s
            if receipt is not None:
                receipt.memory_wait_s = call.memory_wait_s
            self._metrics.memory_wait.labels(call.replica).inc(waited_s)
            self._metrics.memory_waits.labels(call.replica, claim.why or Why.LEFT).inc()


def _name(key: ProgramKey) -> str:
    return f"{key.tenant}/{key.program}"


def _reports_usage(call: Call) -> bool:
    options = call.body.get("stream_options")
    if isinstance(options, dict) and options.get("include_usage") is True:
        return True
    return call.endpoint.name in ("responses", "messages")


def _usage(call: Call, claim: Claim) -> tuple[int, int]:
    """Return the tokens of prompt and output that the engine counted, 0 if unknown."""
    if call.body_out is not None:
        text = call.body_out[-_USAGE_BYTES:]
    else:
        text = b"".join(claim.tail)[-_USAGE_BYTES:]
    prompt, output = _PROMPT.search(text), _OUTPUT.search(text)
    if prompt is None:
        return 0, 0
    return int(prompt[1]), int(output[1]) if output is not None else 0
