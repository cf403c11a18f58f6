"""Computes marks of a prompt's prefix that calls of one prefix cache share. No I/O.

A mark is a hash of the prompt's bytes up to a position. It covers the input of the model's chat
template, not the output. Two bodies with the same content but different JSON share no mark.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from weft_gateway.engine import media
from weft_gateway.model import PromptPrefix
from weft_gateway.policies.unseen import seen, seen_message
from weft_gateway.transcripts.transcript import Known, expanded

# About 512 tokens: long compared with a cache block, short compared with prefixes that affect
# placement.
STEP_BYTES: Final = 2048
# Longer common prefixes count as this long.
_MOST_BYTES: Final = 128 * STEP_BYTES
# Prompt fields of all endpoints, in their order within a prompt.
_FIELDS: Final = ("tools", "functions", "system", "instructions", "messages", "input", "prompt")
_SYSTEM: Final = ("system", "instructions")


def prefix_of(
    body: Mapping[str, Any], model: str, salt: str, bytes_per_token: float
) -> PromptPrefix | None:
    """Return the prefix of a call's prompt. Return None if the prompt is shorter than one step or
    not in the body.

    salt: the tenant's salt. Like the client's own salt, it divides the engines' prefix caches; ""
    for anonymous clients. Marks are valid in this process only.
    """
    if body.get("previous_response_id"):
        return None
    try:
        data = prompt_bytes(body)
    except TypeError:  # Nested too deep, or invalid Unicode.
        return None
    own = body.get("cache_salt")
    # Python's hash is keyed per process, so clients cannot construct collisions, and it is as fast
    # as a checksum.
    before = hash((salt, own if isinstance(own, str) else "", model))
    marks = []
    for end in range(STEP_BYTES, min(len(data), _MOST_BYTES) + 1, STEP_BYTES):
        before = hash((before, data[end - STEP_BYTES : end]))
        marks.append(before)
    step_tokens = max(1, round(STEP_BYTES / bytes_per_token))
    return PromptPrefix(tuple(marks), step_tokens) if marks else None


def prompt_bytes(body: Mapping[str, Any]) -> bytes:
    """Return the prompt of a call as JSON, in the order of a rendered prompt, with digests of
    media, and without what engines leave out. Long ones are cut after 256 KiB. Raises TypeError for
    a prompt that is nested too deep or has invalid Unicode.
    """
    data = bytearray()
    for name in _FIELDS:
        value = body.get(name)
        if name in _SYSTEM:
            value = seen(value)
        if not value:
            continue
        several = isinstance(value, list) and isinstance(value[0], dict | Known)
        pieces = expanded(value) if several else (value,)
        for piece in pieces:
            is_dict = isinstance(piece, dict)
            if is_dict and piece.get("role") == "system":
                piece = seen_message(piece)
            more = orjson.dumps(piece)
            # The usual content is a text, which holds no media.
            is_text = len(more) < STEP_BYTES or (is_dict and type(piece.get("content")) is str)
            data += more if is_text else media.shortened(more)
            if len(data) >= _MOST_BYTES:
                return bytes(data)
    return bytes(data)
