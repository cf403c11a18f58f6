"""Builds the gateway's prompt prefix from the parts of a prompt, each identified by its name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from weft_gateway.model import PromptPrefix

from weft_bench.workloads.schema import Part

# About the gateway's step at four bytes a token.
STEP_TOKENS: Final = 512


def prompt_prefix(parts: Sequence[Part]) -> PromptPrefix | None:
    """Return the prefix of a prompt, or None if the prompt is shorter than one step."""
    # Text hashes differ between processes. This is safe because the marks are only looked up, never
    # stored or sorted.
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
