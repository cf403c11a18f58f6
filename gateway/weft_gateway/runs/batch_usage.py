"""The tokens of a batch, from the `usage` of its answers. Pure."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from weft_gateway.engine.shapes import usage_of


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
    usage = usage_of(answer.get("usage") if isinstance(answer, dict) else None)
    return NO_TOKENS if usage is None else Tokens(*usage)


def usage_json(tokens: Tokens) -> dict[str, Any]:
    """Return the usage of a batch in OpenAI's format."""
    return {
        "input_tokens": tokens.input,
        "input_tokens_details": {"cached_tokens": tokens.cached},
        "output_tokens": tokens.output,
        "output_tokens_details": {"reasoning_tokens": tokens.reasoning},
        "total_tokens": tokens.input + tokens.output,
    }
