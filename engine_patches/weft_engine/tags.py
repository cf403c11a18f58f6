"""What a KV block holds, and so how soon it may go (Sutradhara 4.3). Standard library only."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from operator import ge
from typing import Any, Final, cast


class Tag(IntEnum):
    """In order of eviction, the first to go first. NONE: nobody said what the block holds."""

    NONE = 0
    RESPONSE = 1
    TOOL_OUTPUT = 2
    USER_QUERY = 3
    SYSTEM_PROMPT = 4
    PARTIAL_PREFILL = 5


_TAGS: Final = {int(tag): tag for tag in Tag}


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
        if not set(map(type, values)) <= {int, Tag}:
            raise ValueError("ends and tags must be whole numbers")
        ends = tuple(values[0::2])
        if ends[0] <= 0 or any(map(ge, ends, ends[1:])):
            raise ValueError("ends must grow from above 0")
        tags = tuple(map(_TAGS.get, values[1::2]))
        if None in tags:
            raise ValueError(f"tags are numbers from 0 to {max(Tag):d}")
        return cls(ends, cast("tuple[Tag, ...]", tags))

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
        # The highest tag so far in a block that more than one span is in.
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
            # A span may reach far beyond the blocks that there are.
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
    """The wire form of (end, tag) pairs."""
    return [number for end, tag in spans for number in (end, int(tag))]
