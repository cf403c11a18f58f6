"""Metadata of KV blocks, and the eviction tier that follows from it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import groupby
from typing import Any, Final, NamedTuple

from weft_engine.tags import Tag

# Tier 0 holds empty and untagged blocks; then one tier per tag; the last tier holds pinned blocks.
TIERS: Final = len(Tag) + 1
PINNED: Final = TIERS - 1
LOWEST_PRIORITY: Final = -4
HIGHEST_PRIORITY: Final = 4
# A block's tag expires, and a tenant counts as idle, after the whole cache was reused this many
# times without a use or a call.
AGES: Final = 4

# A tenant and one of its tiers.
Home = tuple[str | None, int]
# The home of blocks without known content: no tenant owns them, and they are reused first.
NOWHERE: Final[Home] = (None, 0)


class BlockMeta(NamedTuple):
    """Metadata of a block's content. Immutable and shared by neighbouring blocks, so that a run of
    blocks is handled at once.

    tenant: the tenant of its last call; the block counts against its share of the cache. owner: the
    only program that has used it, "" for several. tag: the highest tag except PARTIAL_PREFILL.
    priority: the priority that its program requested. partial: programs that prefilled it ahead of
    a call. home: the resulting tenant and tier, unless it is pinned.
    """

    tenant: str
    owner: str
    tag: Tag
    priority: int
    partial: frozenset[str]
    home: Home

    @property
    def tier(self) -> int:
        """Its tier, unless it is pinned."""
        return self.home[1]


_TIERS: Final = {
    # Lowering never makes a tagged block untagged, and raising never lifts an untagged one.
    (tag, priority): int(
        min(max(tag + priority, Tag.RESPONSE if tag else Tag.NONE), Tag.PARTIAL_PREFILL)
    )
    for tag in Tag
    for priority in range(LOWEST_PRIORITY, HIGHEST_PRIORITY + 1)
}


# Equal metadata is usually one object, which makes comparisons fast.
@lru_cache(maxsize=1024)
def block_meta(
    tenant: str, owner: str, tag: Tag, priority: int, partial: frozenset[str]
) -> BlockMeta:
    """Metadata with its home."""
    tier = _TIERS[Tag.PARTIAL_PREFILL if partial else tag, priority]
    return BlockMeta(tenant, owner, tag, priority, partial, (tenant, tier))


def runs_of(items: Iterable[Any]) -> Iterator[tuple[Any, int, int]]:
    """Runs of equal items with their start and end: neighbours in a context are mostly equal."""
    begun = 0
    for item, same in groupby(items):
        end = begun + len(list(same))
        yield item, begun, end
        begun = end
