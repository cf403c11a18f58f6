"""The tokens of a batch, from the `usage` of its answers. Pure."""

from __future__ import annotations

from typing import Any, Final

import msgspec


class Tokens(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tokens of answers. cached: the part of `input` that the engine found in its KV cache.
    reasoning: the part of `output` that is reasoning, if the engine reports it.
    """

    input: int = 0
    cached: int = 0
    output: int = 0
    reasoning: int = 0

    def __add__(self, other: Tokens) -> Tokens:
        return Tokens(
            self.input + other.input,
            self.cached + other.cached,
            self.output + other.output,
            self.reasoning + other.reasoning,
        )


NO_TOKENS: Final = Tokens()


def tokens_of(answer: object) -> Tokens:
    """Return the tokens of a parsed answer: a completion, an embedding or a response. Values that
    are no counts are 0.
    """
    usage = answer.get("usage") if isinstance(answer, dict) else None
    if not isinstance(usage, dict):
        return NO_TOKENS
    # Completions have the first names, responses the second ones.
    side = "prompt" if "prompt_tokens" in usage else "input"
    other = "completion" if side == "prompt" else "output"
    return Tokens(
        _count(usage, f"{side}_tokens"),
        _count(usage.get(f"{side}_tokens_details"), "cached_tokens"),
        _count(usage, f"{other}_tokens"),
        _count(usage.get(f"{other}_tokens_details"), "reasoning_tokens"),
    )


def usage_json(tokens: Tokens) -> dict[str, Any]:
    """Return the usage of a batch in OpenAI's format."""
    return {
        "input_tokens": tokens.input,
        "input_tokens_details": {"cached_tokens": tokens.cached},
        "output_tokens": tokens.output,
        "output_tokens_details": {"reasoning_tokens": tokens.reasoning},
        "total_tokens": tokens.input + tokens.output,
    }


def _count(values: object, name: str) -> int:
    value = values.get(name) if isinstance(values, dict) else None
    # `bool` is an `int`. The sum of a batch must fit into 64 bits.
    return value if type(value) is int and 0 <= value < 1 << 40 else 0
