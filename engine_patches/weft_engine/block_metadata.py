"""What is known of a KV block's content, and the place in the queue that follows from it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import groupby
from typing import Any, Final, NamedTuple

from weft_engine.tags import Tag

# Tier 0 holds what is empty or untagged, then one a tag, then the pinned.
TIERS: Final = len(Tag) + 1
PINNED: Final = TIERS - 1
LOWEST_PRIORITY: Final = -4
HIGHEST_PRIORITY: Final = 4
# Unused while the whole cache was reused so many times, a block's tag loses its worth; a tenant
# without a call for as long is idle.
AGES: Final = 4

# A tenant, and a tier of its blocks.
Home = tuple[str | None, int]
# Of blocks without known content: they belong to no tenant and are reused before all others.
NOWHERE: Final[Home] = (None, 0)


class BlockMeta(NamedTuple):
    """What is known of a block's content. Marks never change: another one takes its place. Blocks
    in a row share one, so that work is done once a row.

    tenant: whose share of the cache the block counts against, the tenant of its last call. owner:
    the only program whose calls have used it, "" for several. tag: the highest but
    PARTIAL_PREFILL. priority: what its program asked for. partial: programs that have prefilled it
    ahead of the call that will use it. home: where all this puts it, unless it is pinned.
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
    # Lowering takes nothing among the untagged, nor raises anything out of them.
    (tag, priority): int(
        min(max(tag + priority, Tag.RESPONSE if tag else Tag.NONE), Tag.PARTIAL_PREFILL)
    )
    for tag in Tag
    for priority in range(LOWEST_PRIORITY, HIGHEST_PRIORITY + 1)
}


# Equal marks are mostly one object, which makes them quick to compare.
@lru_cache(maxsize=1024)
def block_meta(
    tenant: str, owner: str, tag: Tag, priority: int, partial: frozenset[str]
) -> BlockMeta:
    """A mark with its home."""
    tier = _TIERS[Tag.PARTIAL_PREFILL if partial else tag, priority]
    return BlockMeta(tenant, owner, tag, priority, partial, (tenant, tier))


def runs_of(items: Iterable[Any]) -> Iterator[tuple[Any, int, int]]:
    """Each item with where it begins and ends: neighbours in a context are mostly equal."""
    begun = 0
    for item, same in groupby(items):
        end = begun + len(list(same))
        yield item, begun, end
        begun = end
