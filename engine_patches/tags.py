"""What a KV block holds, and so how soon it may go (Sutradhara 4.3). Standard library only."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise
from typing import Any


class Tag(IntEnum):
    """In order of eviction, the first to go first. NONE: nobody said what the block holds."""

    NONE = 0
    RESPONSE = 1
    TOOL_OUTPUT = 2
    USER_QUERY = 3
    SYSTEM_PROMPT = 4
    PARTIAL_PREFILL = 5


@dataclass(frozen=True, slots=True)
class TagSpans:
    """Tags of a prompt: span i ends before token ends[i] and has tags[i]. What lies beyond the
    last span was generated, and is RESPONSE; with no spans at all nothing is known."""

    ends: tuple[int, ...] = ()
    tags: tuple[Tag, ...] = ()

    @classmethod
    def parse(cls, values: Any) -> TagSpans:
        """From the wire: a flat list of end, tag, end, tag ..., with ends that grow and tags as
        numbers. ValueError for anything else."""
        if not isinstance(values, list | tuple) or not values or len(values) % 2:
            raise ValueError("tags must be pairs of an end and a tag")
        if any(isinstance(v, bool) or not isinstance(v, int) for v in values):
            raise ValueError("ends and tags must be whole numbers")
        ends = tuple(values[0::2])
        if ends[0] <= 0 or any(b <= a for a, b in pairwise(ends)):
            raise ValueError("ends must grow from above 0")
        return cls(ends, tuple(Tag(v) for v in values[1::2]))

    def within(self, tokens: int) -> TagSpans:
        """The same without what lies beyond a prompt of so many tokens: what is generated is never
        worth more than a RESPONSE, however long the prompt was thought to be."""
        if not self.ends or self.ends[-1] <= tokens or tokens <= 0:
            return self
        inside = bisect_left(self.ends, tokens)
        return TagSpans((*self.ends[:inside], tokens), self.tags[: inside + 1])

    def of_blocks(self, count: int, block_size: int) -> list[Tag]:
        """The tag of each of a call's first `count` blocks: the highest of its tokens' tags."""
        if not self.ends:
            return [Tag.NONE] * count
        found: list[Tag] = []
        span, spans = 0, len(self.ends)
        while len(found) < count:
            first = len(found) * block_size
            while span < spans and self.ends[span] <= first:
                span += 1
            if span == spans:
                found += [Tag.RESPONSE] * (count - len(found))
                break
            # Most blocks are inside one span.
            inside = min(count, self.ends[span] // block_size) - len(found)
            if inside:
                found += [self.tags[span]] * inside
                continue
            highest, reach = Tag.NONE, span
            while reach < spans:
                highest = max(highest, self.tags[reach])
                if self.ends[reach] >= first + block_size:
                    break
                reach += 1
            else:
                highest = max(highest, Tag.RESPONSE)
            found.append(highest)
        return found


def flatten(spans: Sequence[tuple[int, Tag]]) -> list[int]:
    """The wire form of (end, tag) pairs."""
    return [number for end, tag in spans for number in (end, int(tag))]
