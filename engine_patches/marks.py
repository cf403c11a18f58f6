"""What is known of a KV block's content, and of the contexts that programs have left. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from engine_patches.tags import Tag

# Tier 0 holds what is empty or untagged, then one a tag, then the pinned.
TIERS: Final = len(Tag) + 1
PINNED: Final = TIERS - 1
LOWEST_PRIORITY: Final = -4
HIGHEST_PRIORITY: Final = 4


class Mark(NamedTuple):
    """What is known of a block's content. It never changes: another one takes its place.

    content: its hash; a block of another one has no mark. owner: the only program whose calls have
    used it, "" for several. tag: the highest but PARTIAL_PREFILL. priority: what its program asked
    for. partial: programs that have prefilled it ahead of the call that will use it. tier: where
    all this puts it, unless it is pinned.
    """

    content: Any
    owner: str
    tag: Tag
    priority: int
    partial: frozenset[str]
    tier: int


_TIERS: Final = {
    # Lowering takes nothing among the untagged, nor raises anything out of them.
    (tag, priority): int(
        min(max(tag + priority, Tag.RESPONSE if tag else Tag.NONE), Tag.PARTIAL_PREFILL)
    )
    for tag in Tag
    for priority in range(LOWEST_PRIORITY, HIGHEST_PRIORITY + 1)
}


def marked(content: Any, owner: str, tag: Tag, priority: int, partial: frozenset[str]) -> Mark:
    """A mark with its tier."""
    tier = _TIERS[Tag.PARTIAL_PREFILL if partial else tag, priority]
    return Mark(content, owner, tag, priority, partial, tier)


@dataclass(slots=True)
class Left:
    """The blocks of a context from its first on, as a program's last call has left them: ids,
    contents, tags and marks. To note them once more would change nothing where all are the same,
    which is so for most of a context that grows from call to call."""

    numbers: list[int] = field(default_factory=list)
    contents: list[Any] = field(default_factory=list)
    tags: list[Tag] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)

    def alike(
        self,
        numbers: Sequence[int],
        contents: Sequence[Any],
        tags: Sequence[Tag],
        marks: Sequence[Mark | None],
    ) -> int:
        """How many of these, from the first on, are as they were left."""
        count = _common(self.numbers, numbers, min(len(self.numbers), len(numbers)))
        count = _common(self.contents, contents, count)
        count = _common(self.tags, tags, count)
        return _common(self.marks, marks, count)

    def keep(self, count: int) -> None:
        """Forget all but so many of the first."""
        for kept in (self.numbers, self.contents, self.tags, self.marks):
            del kept[count:]

    def extend(
        self,
        numbers: Sequence[int],
        contents: Sequence[Any],
        tags: Sequence[Tag],
        marks: Sequence[Mark],
    ) -> None:
        """What follows in the context."""
        self.numbers += numbers
        self.contents += contents
        self.tags += tags
        self.marks += marks


def _common(one: Sequence[Any], other: Sequence[Any], count: int) -> int:
    """How many of the first `count` elements agree before two differ."""
    # Lists are compared far faster at once than one by one.
    if one[:count] == other[:count]:
        return count
    low, high = 0, count - 1
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
