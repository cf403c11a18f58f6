"""The stored text form of tags that a client sets for its program ahead of its calls. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import orjson

from weft_gateway.model.hint import OwnTag
from weft_gateway.model.tag import Tag

# Attribute in the process table that stores the tags.
TAGS: Final = "tags"


def encode(tags: Sequence[OwnTag]) -> str:
    """Return the text; "" for no tags."""
    if not tags:
        return ""
    return orjson.dumps(
        [
            (tag.name, int(tag.tag), tag.message, tag.start, tag.end, tag.clamped, tag.messages)
            for tag in tags
        ]
    ).decode()


@lru_cache(maxsize=1024)
def decode(text: str) -> tuple[OwnTag, ...]:
    """The reverse of `encode`, for every call of the program. Unreadable text of another release
    yields no tags.
    """
    try:
        return tuple(OwnTag(name, Tag(tag), *rest) for name, tag, *rest in orjson.loads(text))
    except (ValueError, TypeError):
        return ()
