"""Duration of a program that has an engine to itself, the baseline of slowdowns. Pure."""

from __future__ import annotations

from collections.abc import Callable

from weft_bench.workloads.cutting import ReadyProgram


def alone_s(program: ReadyProgram, alone: Callable[[int, int], float]) -> float:
    """Return the seconds along the longest chain of calls and gaps.

    The engine runs nothing else and caches everything that earlier calls computed. alone:
    `CostModel.alone`.
    """
    ends: list[float] = []
    for number, call in enumerate(program.calls):
        needs = call.call.needs(number)
        known = max((program.calls[n].prompt_tokens for n in needs), default=0)
        begin = max((ends[n] + program.calls[n].call.gap_s for n in needs), default=0.0)
        ends.append(begin + alone(max(0, call.prompt_tokens - known), call.max_tokens))
    return max(ends)
