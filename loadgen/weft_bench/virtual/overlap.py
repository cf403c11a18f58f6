"""What an orchestrator does beside its calls, so that tools and engine overlap. Pure.

Sutradhara 4, as in production: `docs/prefill.md` says what the gateway does, and
`weft_bench.overlap.player` is such an orchestrator over HTTP.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from weft_engine.tags import Tag, flatten

from weft_bench.workloads.schema import Part

# A turn that comes while its prefill runs waits so long for it before it is stopped, seconds; and
# what a prefill is tagged as: spans are cut to the prompt. Both as in
# `gateway/weft_gateway/calls/prefills.py`.
TAKE_WAIT_S: Final = 0.25
PREFILL_TAGS: Final = tuple(flatten([(1 << 24, Tag.PARTIAL_PREFILL)]))


@dataclass(frozen=True, slots=True)
class Overlap:
    """What the orchestrator does.

    split: while tools run, have prefilled what the next turn begins with (4.1). dispatch: start
    each tool when its call is complete in the stream (4.2). tell_tags: say what prompts hold, to an
    engine that evicts by it (4.3). retain_s: have a program's blocks pinned so long after an answer
    that calls tools, seconds, as Continuum does (section 6); 0: not. forget: where the engine tags
    blocks or its order keeps room, tell it of a program's end, as the gateway does: what was its
    own goes first.
    """

    split: bool = False
    dispatch: bool = False
    tell_tags: bool = True
    retain_s: float = 0.0
    forget: bool = True


def complete_at(output_tokens: int, tools: int) -> list[int]:
    """With which token of an answer each of its tool calls is complete, counted from 1.

    The answer is taken for a JSON array of calls of equal length, as the paper's own: call i of k
    has its closing brace at token ceil(n i / k), the last one at the answer's end.
    """
    return [-(-output_tokens * number // tools) for number in range(1, tools + 1)]


def all_done_s(answered_s: float, starts_s: Sequence[float], tool_s: Sequence[float]) -> float:
    """When the answer is there and all its tools have ended. starts_s: when each began."""
    ends = (start + lasts for start, lasts in zip(starts_s, tool_s, strict=True))
    return max(answered_s, *ends) if tool_s else answered_s


def known_before_tools(parts: Sequence[Part]) -> tuple[Part, ...]:
    """What a prompt begins with that is known while the tools run whose outputs it ends with;
    nothing where it ends with something else, whose time is unknown."""
    length = len(parts)
    while length and parts[length - 1].kind == "tool":
        length -= 1
    return tuple(parts[:length]) if length < len(parts) else ()
