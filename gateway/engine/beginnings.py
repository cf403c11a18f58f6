"""What a call's prompt begins with, as marks that calls of one prefix cache share. No I/O.

A mark stands for the bytes of the body's prompt up to it, which is what a model's template is given,
and not what it makes of that: two bodies that mean the same in other words have no mark in common.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from gateway.model import Beginning

# About 512 tokens: long against a cache's blocks, short against what is worth being placed by.
STEP_BYTES: Final = 2048
# Programs that have more in common than this are not told apart from those that have as much.
_MOST_BYTES: Final = 128 * STEP_BYTES
# What prompts are made of in the bodies of all endpoints, what comes first in a prompt first.
_FIELDS: Final = ("tools", "functions", "system", "instructions", "messages", "input", "prompt")


def beginning_of(
    body: Mapping[str, Any], model: str, salt: str, bytes_per_token: float
) -> Beginning | None:
    """The beginning of a call's prompt; None where it is shorter than a step, or not in the body.

    salt: the tenant's, which divides the engines' prefix caches, as the client's own does; "" for
    anonymous clients. Marks hold in this process alone.
    """
    if body.get("previous_response_id"):
        return None
    data = bytearray()
    try:
        for name in _FIELDS:
            value = body.get(name)
            if value is None:
                continue
            # A conversation may be long, and is wanted only as far as the last mark.
            pieces = value if isinstance(value, list) and _are_objects(value) else (value,)
            for piece in pieces:
                data += orjson.dumps(piece)
                if len(data) >= _MOST_BYTES:
                    break
    except TypeError:  # Nested too deep, or text that is no Unicode.
        return None
    # Python's own hash: keyed anew in each process, so that nobody can make two texts of one mark,
    # and as fast as a checksum.
    own = body.get("cache_salt")
    before = hash((salt, own if isinstance(own, str) else "", model))
    marks, view = [], bytes(data)
    for start in range(0, min(len(view), _MOST_BYTES) - STEP_BYTES + 1, STEP_BYTES):
        before = hash((before, view[start : start + STEP_BYTES]))
        marks.append(before)
    return Beginning(tuple(marks), STEP_BYTES / bytes_per_token) if marks else None


def _are_objects(items: list[Any]) -> bool:
    return bool(items) and isinstance(items[0], dict)
