"""Tags of KV blocks, which determine their eviction order (Sutradhara 4.3). Standard library
only."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from operator import ge
from typing import Any, Final, cast


class Tag(IntEnum):
    """Tags in eviction order, the first to be evicted first. NONE: the content is unknown."""

    NONE = 0
    RESPONSE = 1
    TOOL_OUTPUT = 2
    USER_QUERY = 3
    SYSTEM_PROMPT = 4
    PARTIAL_PREFILL = 5


_TAGS: Final = {int(tag): tag for tag in Tag}


@dataclass(frozen=True, slots=True)
class TagSpans:
    """Tags of a prompt: span i ends before token ends[i] and has tags[i]. Tokens after the last
    span were generated and are RESPONSE. Without spans, all tokens are NONE."""

    ends: tuple[int, ...] = ()
    tags: tuple[Tag, ...] = ()

    @classmethod
    def parse(cls, values: Any) -> TagSpans:
        """Parse the wire format: a flat list of end, tag, end, tag ... with increasing ends and
        numeric tags. ValueError for any other value."""
        if not isinstance(values, list | tuple) or not values or len(values) % 2:
            raise ValueError("tags must be pairs of an end and a tag")
        if not set(map(type, values)) <= {int, Tag}:
            raise ValueError("ends and tags must be whole numbers")
        ends = tuple(values[0::2])
        if ends[0] <= 0 or any(map(ge, ends, ends[1:])):
            raise ValueError("ends must be positive and increasing")
        tags = tuple(map(_TAGS.get, values[1::2]))
        if None in tags:
            raise ValueError(f"tags are numbers from 0 to {max(Tag):d}")
        return cls(ends, cast("tuple[Tag, ...]", tags))

    def within(self, tokens: int) -> TagSpans:
        """Cut the spans at this many prompt tokens. Generated tokens are never worth more than a
        RESPONSE, even if the gateway expected a longer prompt."""
        if not self.ends or self.ends[-1] <= tokens or tokens <= 0:
            return self
        inside = bisect_left(self.ends, tokens)
        return TagSpans((*self.ends[:inside], tokens), self.tags[: inside + 1])

    def of_blocks(self, count: int, block_size: int) -> list[Tag]:
        """Return the tag of each of a call's first `count` blocks: the highest tag of its
        tokens."""
        if not self.ends:
            return [Tag.NONE] * count
        found: list[Tag] = []
        # The highest tag so far in a block that several spans share.
        highest: Tag | None = None
        for end, tag in zip(self.ends, self.tags, strict=True):
            done = len(found)
            if highest is not None:
                if tag > highest:
                    highest = tag
                if end < (done + 1) * block_size:
                    continue
                found.append(highest)
                done += 1
                highest = None
            # A span may reach far beyond the last block.
            full = min(end // block_size, count)
            if full > done:
                found += [tag] * (full - done)
            if full * block_size < end:
                highest = tag
            if full >= count:
                break
        if highest is not None:
            found.append(max(highest, Tag.RESPONSE))
        found += [Tag.RESPONSE] * (count - len(found))
        del found[count:]
        return found


def flatten(spans: Sequence[tuple[int, Tag]]) -> list[int]:
    """Return the wire format of (end, tag) pairs."""
    return [number for end, tag in spans for number in (end, int(tag))]
