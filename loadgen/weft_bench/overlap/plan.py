"""A request with the measured times of its parts and the resulting times of its tools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from weft_bench.overlap.player import Result, Work
from weft_bench.overlap.prompts import ReadyTurn
from weft_bench.overlap.shape import ShapeRequest
from weft_bench.stats import percentile


@dataclass(frozen=True, slots=True)
class Plan:
    """A planned request.

    model_s: the model's seconds until the final answer's first token, alone and with nothing
    cached. final_tokens, final_s: length of the final answer and seconds to decode it.
    """

    request: ShapeRequest
    turns: Sequence[ReadyTurn]
    model_s: float
    final_tokens: int
    final_s: float

    def work(self, slower: float) -> Work:
        """Return the request to play. slower: real duration divided by `model_s`."""
        seconds = self.request.tool_seconds(slower * self.model_s)
        return Work(self.request.number, self.turns, seconds, self.final_tokens)

    def e2e_s(self, slower: float) -> float:
        """Return the seconds until the final answer's last token."""
        tools_s = sum(max(each) for each in self.request.tool_seconds(slower * self.model_s))
        return slower * self.model_s + tools_s + self.final_s


def slowdown(plans: Sequence[Plan], results: Sequence[Result]) -> float:
    """Return the median ratio of real time without tools to `model_s`, without overlap.

    Requests wait for each other, for grammars and for the gateway, and find parts of their prompts
    cached. The published shares refer to the total time of requests (Sutradhara 3.2). results: of
    the plans, in their order. Raises ValueError if every request failed.
    """
    ratios = [
        (result.ftr_s - result.tool_s) / plan.model_s
        for plan, result in zip(plans, results, strict=True)
        if not result.errors
    ]
    if not ratios:
        first = results[0].errors[0] if results else "no request was played"
        raise ValueError(f"no request was answered: {first}")
    return percentile(ratios, 0.5)
