"""Tags of a prompt's parts, as sent to engines (Sutradhara 4.3)."""

from __future__ import annotations

from enum import IntEnum


class Tag(IntEnum):
    """In order of eviction, first evicted first. The numbers are those of the wire format
    (`weft_tags`) and of `weft_engine.tags.Tag`.
    """

    NONE = 0
    RESPONSE = 1
    TOOL_OUTPUT = 2
    USER_QUERY = 3
    SYSTEM_PROMPT = 4
    PARTIAL_PREFILL = 5
