"""Limits of tenants: admits a call, corrects its tokens, releases its place."""

from __future__ import annotations

from weft_gateway.calls.call import Call
from weft_gateway.calls.limits import TenantLimits
from weft_gateway.calls.observers import CallObserver
from weft_gateway.calls.placement import PromptCounter


class LimitsObserver(CallObserver):
    """Applies the limits of tenants to calls."""

    def __init__(self, limits: TenantLimits, counter: PromptCounter) -> None:
        self._limits = limits
        self._counter = counter

    async def arrived(self, call: Call) -> None:
        """Admit the call. Raises ApiError 429 for a call over the limits."""
        tokens = self._counter.prompt_tokens(call)
        call.admitted = await self._limits.admit(call.caller.tenant, tokens)

    def closed(self, call: Call) -> None:
        """Correct the tokens by the engine's count."""
        admitted, usage = call.admitted, call.usage
        if admitted is not None and usage is not None:
            self._limits.used(admitted, usage.prompt_tokens + usage.output_tokens)

    def ended(self, call: Call) -> None:
        """Release the call's place."""
        admitted, call.admitted = call.admitted, None
        if admitted is not None:
            self._limits.release(admitted)
