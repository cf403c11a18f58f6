"""Prompts of parts as token ids that an engine takes. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from hashlib import shake_128
from itertools import chain

from loadgen.schema import Part
from loadgen.traces.coding import FIRST_ID, IDS


def token_ids(parts: Iterable[Part]) -> tuple[int, ...]:
    """Ids of any vocabulary: of two parts of one name the shorter is how the longer begins."""
    return tuple(chain.from_iterable(_ids(part.name, part.tokens) for part in parts))


@lru_cache(maxsize=4096)
def _ids(name: str, tokens: int) -> tuple[int, ...]:
    digest = shake_128(name.encode()).digest(2 * tokens)
    return tuple(
        FIRST_ID + int.from_bytes(digest[2 * i : 2 * i + 2], "big") % IDS for i in range(tokens)
    )
