"""vLLM's queue of free KV blocks in tiers: the lowest tier is reused first, and inside a tier the
least recently used. Pure: blocks and queues are handed in.

It has the methods of vLLM's own queue and stands in its place. Each tier is one of vLLM's own
queues, a linked list through the blocks, so that everything stays O(1) a block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any


class TieredFreeQueue:
    """Free blocks in `tiers` tiers.

    make: an empty queue of vLLM's kind that has `remove_n`. tiers_of: the tier, from 0, of each of
    some blocks that are freed with something in them. on_reuse: told which blocks were taken and
    will hold something else. blocks: those that are free now, in their order; they go to tier 0.
    """

    def __init__(
        self,
        make: Callable[[], Any],
        tiers: int,
        tiers_of: Callable[[Sequence[Any]], Sequence[int]],
        on_reuse: Callable[[Sequence[Any]], None],
        blocks: Sequence[Any] = (),
    ) -> None:
        self._queues = [make() for _ in range(tiers)]
        self._tiers_of = tiers_of
        self._on_reuse = on_reuse
        # Where each free block is, by its id: a block knows its neighbours, not its queue.
        self._place: dict[int, int] = {}
        # All tiers together; vLLM reads it for every sequence in every step.
        self.num_free_blocks = 0
        self.prepend_n(list(blocks))

    def popleft(self) -> Any:
        """The block to reuse first. ValueError if none is free."""
        for queue in self._queues:
            if queue.num_free_blocks:
                block = queue.popleft()
                del self._place[block.block_id]
                self.num_free_blocks -= 1
                self._on_reuse((block,))
                return block
        raise ValueError("No free blocks available")

    def popleft_n(self, n: int) -> list[Any]:
        """The n blocks to reuse first; there must be so many."""
        assert self.num_free_blocks >= n, (self.num_free_blocks, n)
        if n == 1:
            return [self.popleft()]
        taken: list[Any] = []
        for queue in self._queues:
            wanted = min(n - len(taken), queue.num_free_blocks)
            if wanted:
                taken.extend(queue.popleft_n(wanted))
        for block in taken:
            del self._place[block.block_id]
        self.num_free_blocks -= len(taken)
        self._on_reuse(taken)
        return taken

    def remove(self, block: Any) -> None:
        """Take a free block out, wherever it is. RuntimeError if it is not free."""
        tier = self._place.pop(block.block_id, None)
        if tier is None:
            raise RuntimeError(f"remove() called on an invalid block: {block}")
        self._queues[tier].remove(block)
        self.num_free_blocks -= 1

    def remove_n(self, blocks: Sequence[Any]) -> None:
        """Take several blocks out. KeyError if one is not free."""
        take = self._place.pop
        tiers = [take(block.block_id) for block in blocks]
        for tier, begun, end in _runs(tiers):
            self._queues[tier].remove_n(blocks[begun:end])
        self.num_free_blocks -= len(blocks)

    def append(self, block: Any) -> None:
        """A block was freed: the last of its tier."""
        self.append_n((block,))

    def append_n(self, blocks: Sequence[Any]) -> None:
        """Several blocks were freed, the first to be reused first."""
        self._append(blocks, self._tiers_of(blocks))

    def prepend_n(self, blocks: Sequence[Any]) -> None:
        """Blocks with nothing in them: the first of all."""
        self._queues[0].prepend_n(list(blocks))
        for block in blocks:
            self._place[block.block_id] = 0
        self.num_free_blocks += len(blocks)

    def get_all_free_blocks(self) -> list[Any]:
        """In the order in which they will be reused."""
        return [block for queue in self._queues for block in queue.get_all_free_blocks()]

    def iter_blocks_after(self, cursor: Any) -> Iterator[Any]:
        """Free blocks in the order of reuse, those after a free block, or all for None."""
        tier = 0 if cursor is None else self._place[cursor.block_id]
        yield from self._queues[tier].iter_blocks_after(cursor)
        for queue in self._queues[tier + 1 :]:
            yield from queue.iter_blocks_after(None)

    def retier_n(self, blocks: Sequence[Any]) -> None:
        """What is known of these blocks has changed: put those that are free into their tiers.
        There they count as just used, in this order."""
        place = self._place
        free = [block for block in blocks if block.block_id in place]
        tiers = self._tiers_of(free)
        moved = [
            (block, tier)
            for block, tier in zip(free, tiers, strict=True)
            if place[block.block_id] != tier
        ]
        if moved:
            gone = [block for block, _ in moved]
            # Blocks of a context come deepest first here, and leave the quickest the other way.
            self.remove_n(gone[::-1])
            self._append(gone, [tier for _, tier in moved])

    def _append(self, blocks: Sequence[Any], tiers: Sequence[int]) -> None:
        self._place.update(zip([block.block_id for block in blocks], tiers, strict=True))
        for tier, begun, end in _runs(tiers):
            self._queues[tier].append_n(blocks[begun:end])
        self.num_free_blocks += len(blocks)

    def counts(self) -> list[int]:
        """Free blocks in each tier."""
        return [queue.num_free_blocks for queue in self._queues]

    def violations(self, blocks: Sequence[Any]) -> list[str]:
        """What is inconsistent between this queue and all blocks of the cache, in words."""
        linked = [
            (block.block_id, tier)
            for tier, queue in enumerate(self._queues)
            for block in queue.get_all_free_blocks()
        ]
        unused = {b.block_id for b in blocks if not b.ref_cnt and not b.is_null}
        found = []
        if len(linked) != len(self._place) or dict(linked) != self._place:
            found.append("free blocks are not in the tiers that are noted for them")
        if unused != self._place.keys():
            found.append("the free blocks are not those that nobody uses")
        if self.num_free_blocks != len(linked) or sum(self.counts()) != len(linked):
            found.append(f"{self.num_free_blocks} free blocks are counted, {len(linked)} are")
        tiers = self._tiers_of([blocks[number] for number, _ in linked])
        wrong = [at[0] for at, tier in zip(linked, tiers, strict=True) if at[1] != tier]
        if wrong:
            found.append(f"free blocks {wrong} are in the tier of something else")
        return found


def _runs(tiers: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Each tier with where it begins and ends: neighbours in a context are mostly of one."""
    begun = 0
    for tier, same in groupby(tiers):
        end = begun + len(list(same))
        yield tier, begun, end
        begun = end
