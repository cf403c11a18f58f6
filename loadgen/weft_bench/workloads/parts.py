"""Converts prompts of parts to token ids and tags. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Final

from weft_bench.workloads.schema import Part
from weft_bench.workloads.traces.coding import ids_of

# The tag of a part, by its role.
_TAG_OF_KIND: Final = {
    "system": "SYSTEM_PROMPT",
    "user": "USER_QUERY",
    "tool": "TOOL_OUTPUT",
    "assistant": "RESPONSE",
}

# Eviction order: lower values are evicted first.
_WORTH: Final = {
    tag: worth
    for worth, tag in enumerate(("RESPONSE", "TOOL_OUTPUT", "USER_QUERY", "SYSTEM_PROMPT"))
}


def token_ids(parts: Iterable[Part]) -> tuple[int, ...]:
    """Return token ids that are valid in any vocabulary.

    If two parts have one name, the shorter is a prefix of the longer.
    """
    return tuple(chain.from_iterable(ids_of(part.name, part.tokens) for part in parts))


def tag_spans(parts: Iterable[Part]) -> tuple[tuple[int, str], ...]:
    """Return the tags of the parts as in `TraceCall.tags`, or () if a part has no known kind.

    A part has the highest tag of itself and all later parts, as in `weft_gateway.policies.tags`: a
    cache that has lost a part finds none of the later ones.
    """
    spans: list[tuple[int, str]] = []
    end = 0
    for part in parts:
        if part.kind not in _TAG_OF_KIND:
            return ()
        tag = _TAG_OF_KIND[part.kind]
        end += part.tokens
        while spans and _WORTH[spans[-1][1]] <= _WORTH[tag]:
            spans.pop()
        spans.append((end, tag))
    return tuple(spans)
