"""Tags that a client gave its program ahead of the calls that they are for, as the text that the
process table stores. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import orjson

from weft_gateway.model.hint import OwnTag
from weft_gateway.model.tag import Tag

# Under this name the table keeps them.
TAGS: Final = "tags"


def encode(tags: Sequence[OwnTag]) -> str:
    """The text; "" for none at all."""
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
    """The reverse of `encode`, for every call of the program. What another release wrote, and this
    one cannot read, says nothing."""
    try:
        return tuple(OwnTag(name, Tag(tag), *rest) for name, tag, *rest in orjson.loads(text))
    except (ValueError, TypeError):
        return ()
