"""Learns token counts of prompts from what engines count."""

from __future__ import annotations

from weft_gateway.calls.call import Call
from weft_gateway.calls.observers import CallObserver
from weft_gateway.calls.placement import PromptCounter
from weft_gateway.model import Outcome


class TokenLearning(CallObserver):
    """Learns the length of each answered call's prompt."""

    def __init__(self, counter: PromptCounter) -> None:
        self._counter = counter

    def closed(self, call: Call) -> None:
        """Learn from the engine's count."""
        usage = call.usage
        if usage is not None and call.outcome is Outcome.OK:
            self._counter.learn(call, usage.prompt_tokens)
