"""The tokens of answers, in the formats of all endpoints of a batch."""

from __future__ import annotations

from typing import Any

import pytest
from openai.types.batch_usage import BatchUsage
from weft_gateway.runs.batch_usage import NO_TOKENS, Tokens, tokens_of, usage_json

CHAT = {
    "prompt_tokens": 9,
    "completion_tokens": 4,
    "total_tokens": 13,
    "prompt_tokens_details": {"cached_tokens": 8},
    "completion_tokens_details": {"reasoning_tokens": 3},
}
RESPONSE = {
    "input_tokens": 9,
    "output_tokens": 4,
    "total_tokens": 13,
    "input_tokens_details": {"cached_tokens": 8},
    "output_tokens_details": {"reasoning_tokens": 3},
}


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (CHAT, Tokens(9, 8, 4, 3)),
        (RESPONSE, Tokens(9, 8, 4, 3)),
        (CHAT | {"prompt_tokens_details": None}, Tokens(9, 0, 4, 3)),
        ({"prompt_tokens": 7, "total_tokens": 7}, Tokens(7)),
        ({"prompt_tokens": "9", "completion_tokens": -1}, NO_TOKENS),
        ({"prompt_tokens": True, "completion_tokens": 1 << 60}, NO_TOKENS),
        ([], NO_TOKENS),
        (None, NO_TOKENS),
    ],
)
def test_usage_of_an_answer(usage: Any, expected: Tokens) -> None:
    assert tokens_of({"usage": usage}) == expected


def test_usage_of_a_batch_has_the_type_of_the_client() -> None:
    assert tokens_of("text") == NO_TOKENS
    shown = usage_json(tokens_of({"usage": CHAT}) + tokens_of({"usage": RESPONSE}))
    assert BatchUsage.model_validate(shown).model_dump() == shown
    assert shown["total_tokens"] == 26
