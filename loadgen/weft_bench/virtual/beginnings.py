"""What a prompt of parts begins with, as the gateway's marks: each known by what the parts hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from weft_gateway.model import PromptPrefix

from weft_bench.workloads.schema import Part

# About what the gateway's step is at four bytes a token.
STEP_TOKENS: Final = 512


def beginning_of(parts: Sequence[Part]) -> PromptPrefix | None:
    """The beginning of a prompt; None for one that is shorter than a step."""
    # Only looked up, never stored or ordered by: that text hashes differently in each process
    # changes nothing.
    marks: list[int] = []
    before, missing = 0, STEP_TOKENS
    for part in parts:
        passed = 0
        while part.tokens - passed >= missing:
            before = hash((before, part.name, passed, missing))
            marks.append(before)
            passed += missing
            missing = STEP_TOKENS
        if passed < part.tokens:
            before = hash((before, part.name, passed, part.tokens - passed))
            missing -= part.tokens - passed
    return PromptPrefix(tuple(marks), STEP_TOKENS) if marks else None
