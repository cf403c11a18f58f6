"""The stored text form of tags that a client sets for its program ahead of its calls. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import msgspec

from weft_gateway.model.hint import OwnTag

# Attribute in the process table that stores the tags.
TAGS: Final = "tags"


def encode(tags: Sequence[OwnTag]) -> str:
    """Return the text; "" for no tags."""
    return msgspec.json.encode(tags).decode() if tags else ""


@lru_cache(maxsize=1024)
def decode(text: str) -> tuple[OwnTag, ...]:
    """The reverse of `encode`, for every call of the program. Unreadable text of another release
    yields no tags.
    """
    try:
        return msgspec.json.decode(text, type=tuple[OwnTag, ...])
    except msgspec.DecodeError:
        return ()
