"""What a program takes with an engine to itself: the measure of slowdowns. Pure."""

from __future__ import annotations

from collections.abc import Callable

from weft_bench.workloads.cutting import ReadyProgram


def alone_s(program: ReadyProgram, alone: Callable[[int, int], float]) -> float:
    """Seconds along the longest chain of calls and gaps, with nothing else in the engine and all
    that calls before have computed in the cache. alone: `CostModel.alone`."""
    ends: list[float] = []
    for number, call in enumerate(program.calls):
        needs = call.call.needs(number)
        known = max((program.calls[n].prompt_tokens for n in needs), default=0)
        begin = max((ends[n] + program.calls[n].call.gap_s for n in needs), default=0.0)
        ends.append(begin + alone(max(0, call.prompt_tokens - known), call.max_tokens))
    return max(ends)
