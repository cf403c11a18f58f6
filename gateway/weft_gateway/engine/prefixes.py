"""What a call's prompt begins with, as marks that calls of one prefix cache share. No I/O.

A mark stands for the bytes of the body's prompt up to it: for what a model's template is given, and
not for what it makes of that. Two bodies that say the same in other JSON have no mark in common.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from weft_gateway.model import PromptPrefix

# About 512 tokens: long against a cache's blocks, short against what is worth being placed by.
STEP_BYTES: Final = 2048
# Programs that have more in common than this are not told apart from those that have as much.
_MOST_BYTES: Final = 128 * STEP_BYTES
# What prompts are made of in the bodies of all endpoints, what comes first in a prompt first.
_FIELDS: Final = ("tools", "functions", "system", "instructions", "messages", "input", "prompt")


def prefix_of(
    body: Mapping[str, Any], model: str, salt: str, bytes_per_token: float
) -> PromptPrefix | None:
    """The beginning of a call's prompt; None where it is shorter than a step, or not in the body.

    salt: the tenant's, which divides the engines' prefix caches, as the client's own does; "" for
    anonymous clients. Marks hold in this process alone.
    """
    if body.get("previous_response_id"):
        return None
    try:
        data = _written(body)
    except TypeError:  # Nested too deep, or text that is no Unicode.
        return None
    own = body.get("cache_salt")
    # Python's own hash: keyed anew in each process, so that nobody can make two texts of one mark,
    # and as fast as a checksum.
    before = hash((salt, own if isinstance(own, str) else "", model))
    marks = []
    for end in range(STEP_BYTES, min(len(data), _MOST_BYTES) + 1, STEP_BYTES):
        before = hash((before, data[end - STEP_BYTES : end]))
        marks.append(before)
    step_tokens = max(1, round(STEP_BYTES / bytes_per_token))
    return PromptPrefix(tuple(marks), step_tokens) if marks else None


def _written(body: Mapping[str, Any]) -> bytes:
    """The prompt as JSON. Of a conversation, which may be long, as much as marks are made of."""
    data = bytearray()
    for value in filter(None, map(body.get, _FIELDS)):
        pieces = value if isinstance(value, list) and isinstance(value[0], dict) else (value,)
        for piece in pieces:
            data += orjson.dumps(piece)
            if len(data) >= _MOST_BYTES:
                return bytes(data)
    return bytes(data)
