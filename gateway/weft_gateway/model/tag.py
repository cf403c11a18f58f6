"""What a part of a prompt is, as engines are told it (Sutradhara 4.3)."""

from __future__ import annotations

from enum import IntEnum


class Tag(IntEnum):
    """In order of eviction, the first to go first. The numbers are the wire's (`weft_tags`), and
    the same as `weft_engine.tags.Tag`."""

    NONE = 0
    RESPONSE = 1
    TOOL_OUTPUT = 2
    USER_QUERY = 3
    SYSTEM_PROMPT = 4
    PARTIAL_PREFILL = 5
