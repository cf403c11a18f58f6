"""A request with how long its parts take here, and how long its tools shall run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from weft_bench.overlap.player import Result, Work
from weft_bench.overlap.prompts import ReadyTurn
from weft_bench.overlap.shape import ShapeRequest
from weft_bench.stats import percentile


@dataclass(frozen=True, slots=True)
class Plan:
    """model_s: what the model takes until the first token of the final answer, alone and with
    nothing cached, seconds. final_tokens, final_s: the final answer and its decoding."""

    request: ShapeRequest
    turns: Sequence[ReadyTurn]
    model_s: float
    final_tokens: int
    final_s: float

    def work(self, slower: float) -> Work:
        """What is played. slower: how many times `model_s` such requests really take."""
        seconds = self.request.tool_seconds(slower * self.model_s)
        return Work(self.request.number, self.turns, seconds, self.final_tokens)

    def e2e_s(self, slower: float) -> float:
        """Until the final answer's last token, seconds."""
        tools_s = sum(max(each) for each in self.request.tool_seconds(slower * self.model_s))
        return slower * self.model_s + tools_s + self.final_s


def slowdown(plans: Sequence[Plan], results: Sequence[Result]) -> float:
    """How many times their `model_s` requests took that were played without overlap, beside their
    tools: the median. They wait for each other, for grammars and for the gateway, and find some of
    their prompts cached. The published shares are of what requests take in all (Sutradhara 3.2).

    results: of the plans, in their order. ValueError when none was answered.
    """
    ratios = [
        (result.ftr_s - result.tool_s) / plan.model_s
        for plan, result in zip(plans, results, strict=True)
        if not result.errors
    ]
    if not ratios:
        first = results[0].errors[0] if results else "none was played"
        raise ValueError(f"no request was answered: {first}")
    return percentile(ratios, 0.5)
