"""Limits of tenants: admits a call, corrects its tokens, releases its place."""

from __future__ import annotations

from weft_gateway.calls.background import BackgroundCalls
from weft_gateway.calls.call import Call
from weft_gateway.calls.limits import TenantLimits
from weft_gateway.calls.observers import CallObserver
from weft_gateway.calls.placement import PromptCounter


class LimitsObserver(CallObserver):
    """Applies the limits of tenants to calls."""

    def __init__(
        self, limits: TenantLimits, counter: PromptCounter, background: BackgroundCalls
    ) -> None:
        self._limits = limits
        self._counter = counter
        self._background = background

    async def arrived(self, call: Call) -> None:
        """Admit the call. Raises ApiError 429 for a call over the limits."""
        tokens = self._counter.prompt_tokens(call)
        call.admitted = await self._limits.admit(call.caller.tenant, tokens)

    def closed(self, call: Call) -> None:
        """Correct the tokens by the engine's count. A call that continues in the background keeps
        its place.
        """
        admitted = call.admitted
        if admitted is None:
            return
        if call.report is not None:
            self._limits.used(admitted, call.report.prompt_tokens + call.report.output_tokens)
        if call.body_out is not None and call.response_id and call.body.get("background") is True:
            call.admitted = None
            self._background.hold(call.response_id, call.replica, admitted)

    def ended(self, call: Call) -> None:
        """Release the call's place."""
        admitted, call.admitted = call.admitted, None
        if admitted is not None:
            self._limits.release(admitted)
