"""Orchestrator features that overlap tools and engine (Sutradhara 4). Pure.

`docs/prefill.md` describes the gateway's part. `weft_bench.overlap.player` is the same orchestrator
over HTTP.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from weft_engine.tags import Tag, flatten

from weft_bench.workloads.schema import Part

# TAKE_WAIT_S: how long a turn waits for its running prefill before the prefill is stopped, seconds.
# PREFILL_TAGS: the tags of a prefill; spans are cut to the prompt. Both equal those of
# `gateway/weft_gateway/calls/prefills.py`.
TAKE_WAIT_S: Final = 0.25
PREFILL_TAGS: Final = tuple(flatten([(1 << 24, Tag.PARTIAL_PREFILL)]))


@dataclass(frozen=True, slots=True)
class Overlap:
    """Features of the orchestrator.

    split: while tools run, prefill the beginning of the next turn (4.1). dispatch: start each tool
    when its call is complete in the stream (4.2). tell_tags: send block tags to an engine that
    evicts by them (4.3). retain_s: pin a program's blocks for this long after an answer that calls
    tools, seconds, as Continuum does (section 6); 0 turns it off. forget: if the engine tags blocks
    or its order reserves cache, send it each program's end, as the gateway does; the program's own
    blocks are then evicted first.
    """

    split: bool = False
    dispatch: bool = False
    tell_tags: bool = True
    retain_s: float = 0.0
    forget: bool = True


def complete_at(output_tokens: int, tools: int) -> list[int]:
    """Return the token of the answer with which each tool call is complete, counted from 1.

    The answer is modelled as a JSON array of calls of equal length, as in the paper: call i of k
    has its closing brace at token ceil(n i / k), the last one at the answer's end.
    """
    return [-(-output_tokens * number // tools) for number in range(1, tools + 1)]


def all_done_s(answered_s: float, starts_s: Sequence[float], tool_s: Sequence[float]) -> float:
    """Return when the answer and all its tools have ended. starts_s: the start of each tool."""
    ends = (start + lasts for start, lasts in zip(starts_s, tool_s, strict=True))
    return max(answered_s, *ends) if tool_s else answered_s


def known_before_tools(parts: Sequence[Part]) -> tuple[Part, ...]:
    """Return the parts that are known before the tools end whose outputs end the prompt.

    Empty if the prompt ends with another kind of part, because the time of that part is unknown.
    """
    length = len(parts)
    while length and parts[length - 1].kind == "tool":
        length -= 1
    return tuple(parts[:length]) if length < len(parts) else ()
