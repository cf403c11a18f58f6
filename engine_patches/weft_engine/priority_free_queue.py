"""vLLM's queue of free KV blocks, by tenants and tiers. Pure: callers pass blocks and queues.

The next block comes from the tenant with the most free blocks per weight, from its lowest tier,
least recently used first. So a tenant's hints order only that tenant's blocks. Blocks that stayed
unused while the whole cache was reused several times come first, in any tier.

The queue replaces vLLM's queue and has its methods. Each tier of a tenant is one queue of vLLM, a
linked list through the blocks, so every operation is O(1) per block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from weft_engine.block_metadata import NOWHERE, TIERS, Home, runs_of


class _Tier:
    """One tier of one tenant."""

    __slots__ = ("home", "lane", "queue")

    def __init__(self, lane: _Lane, tier: int, queue: Any) -> None:
        self.home: Home = (lane.tenant, tier)
        self.lane = lane
        self.queue = queue


class _Lane:
    """The free blocks of a tenant, lowest tier first. count: the number of blocks. ages_at: no
    block has aged while the clock is below this value."""

    __slots__ = ("ages_at", "count", "shelves", "tenant")

    def __init__(self, tenant: str | None, make: Callable[[], Any]) -> None:
        self.tenant = tenant
        self.count = 0
        self.ages_at = float("inf")
        self.shelves = [_Tier(self, tier, make()) for tier in range(TIERS)]


class PriorityFreeQueue:
    """Free blocks by home, a tenant and a tier.

    make: creates an empty queue of vLLM's kind with `first` and `remove_n`. homes_of: returns the
    homes of freed blocks with content. on_reuse: called with the blocks that were taken for other
    content. blocks: the free blocks at the start, in order; no tenant owns them. weight: a tenant's
    weight; 0 for idle tenants, whose blocks are reused before those of active ones. ages: a block
    above the lowest tier and below the pins is reused first of its tenant's after this many reuses
    since it was freed. grain: blocks taken from a tenant before the next choice of a tenant, which
    takes time per tenant.

    reused: blocks taken so far, the queue's clock.
    """

    def __init__(
        self,
        make: Callable[[], Any],
        homes_of: Callable[[Sequence[Any]], Sequence[Home]],
        on_reuse: Callable[[Sequence[Any]], None],
        blocks: Sequence[Any] = (),
        *,
        weight: Callable[[str | None, int], float] = lambda tenant, clock: 1.0,
        ages: float = float("inf"),
        grain: int = 1,
    ) -> None:
        self._make = make
        self._homes_of = homes_of
        self._on_reuse = on_reuse
        self._weight = weight
        self._ages = ages
        self._grain = grain
        # The tenant that blocks are taken from at present, and how many more.
        self._giving: _Lane | None = None
        self._left = 0
        self._nobody = _Lane(None, make)
        # Tenants with free blocks.
        self._lanes: dict[str | None, _Lane] = {}
        # The tier of each free block, by block id. A block knows its neighbours but not its queue.
        self._place: dict[int, _Tier] = {}
        # The clock at which each block was freed.
        self._freed: dict[int, int] = {}
        self.reused = 0
        # The total; vLLM reads it for every sequence in every step.
        self.num_free_blocks = 0
        self.prepend_n(list(blocks))

    def popleft(self) -> Any:
        """Take the block to reuse first. ValueError if no block is free."""
        if not self.num_free_blocks:
            raise ValueError("No free blocks available")
        return self.popleft_n(1)[0]

    def popleft_n(self, n: int) -> list[Any]:
        """Take the n blocks to reuse first. At least n blocks must be free."""
        assert self.num_free_blocks >= n, (self.num_free_blocks, n)
        taken: list[Any] = []
        unowned = min(n, self._nobody.count)
        if unowned:
            self._nobody.count -= unowned
            taken = self._nobody.shelves[0].queue.popleft_n(unowned)
        while len(taken) < n:
            lane, most = self._next(n - len(taken))
            before = len(taken)
            self._take(lane, most, taken)
            self._shrink(lane, len(taken) - before)
        place = self._place
        for block in taken:
            del place[block.block_id]
        self.num_free_blocks -= n
        self.reused += n
        self._on_reuse(taken)
        return taken

    def remove(self, block: Any) -> None:
        """Remove a free block. RuntimeError if it is not free."""
        # vLLM calls this for each block of a context that a call finds in the cache.
        shelf = self._place.pop(block.block_id, None)
        if shelf is None:
            raise RuntimeError(f"remove() called on an invalid block: {block}")
        shelf.queue.remove(block)
        self._shrink(shelf.lane, 1)
        self.num_free_blocks -= 1

    def remove_n(self, blocks: Sequence[Any]) -> None:
        """Remove several blocks. KeyError if one is not free."""
        shelves = list(map(self._place.pop, [block.block_id for block in blocks]))
        for shelf, begun, end in runs_of(shelves):
            shelf.queue.remove_n(blocks[begun:end])
            self._shrink(shelf.lane, end - begun)
        self.num_free_blocks -= len(blocks)

    def append(self, block: Any) -> None:
        """Add a freed block at the end of its tier."""
        self.append_n((block,))

    def append_n(self, blocks: Sequence[Any]) -> None:
        """Add freed blocks, the first to be reused first."""
        for home, begun, end in runs_of(self._homes_of(blocks)):
            self._put(home, blocks[begun:end])
        self.num_free_blocks += len(blocks)

    def prepend_n(self, blocks: Sequence[Any]) -> None:
        """Add freed blocks without content: they are the first to be reused."""
        shelf = self._nobody.shelves[0]
        shelf.queue.prepend_n(list(blocks))
        self._place.update(dict.fromkeys([block.block_id for block in blocks], shelf))
        self._nobody.count += len(blocks)
        self.num_free_blocks += len(blocks)

    def get_all_free_blocks(self) -> list[Any]:
        """Return the free blocks by tenant, each tenant's in the order of reuse while none has
        aged."""
        return [b for shelf in self._shelves() for b in shelf.queue.get_all_free_blocks()]

    def iter_blocks_after(self, cursor: Any) -> Iterator[Any]:
        """Iterate in the order of `get_all_free_blocks` over the blocks after `cursor`, a free
        block; None for all blocks."""
        at = None if cursor is None else self._place[cursor.block_id]
        for shelf in self._shelves():
            if at is None:
                yield from shelf.queue.iter_blocks_after(None)
            elif shelf is at:
                yield from shelf.queue.iter_blocks_after(cursor)
                at = None

    def retier_n(self, blocks: Sequence[Any]) -> None:
        """Move the free ones of these blocks to their new homes after a change of metadata. In a
        new home they count as just used, in this order."""
        place = self._place
        free = [block for block in blocks if block.block_id in place]
        shelves = [place[block.block_id] for block in free]
        homes = self._homes_of(free)
        moved = [
            (shelf, home, free[begun:end])
            for (shelf, home), begun, end in runs_of(zip(shelves, homes, strict=True))
            if shelf.home != home
        ]
        for shelf, _, run in moved:
            # Blocks of a context come deepest first; removal is fastest in the reverse order.
            shelf.queue.remove_n(run[::-1])
            self._shrink(shelf.lane, len(run))
        for _, home, run in moved:
            self._put(home, run)

    def violations(self, blocks: Sequence[Any]) -> list[str]:
        """Return inconsistencies between this queue and all blocks of the cache, in words."""
        linked = [
            (block.block_id, shelf)
            for shelf in self._shelves()
            for block in shelf.queue.get_all_free_blocks()
        ]
        unused = {b.block_id for b in blocks if not b.ref_cnt and not b.is_null}
        found = []
        if len(linked) != len(self._place) or dict(linked) != self._place:
            found.append("free blocks are not in their recorded tiers")
        if unused != self._place.keys():
            found.append("the free blocks differ from the unused blocks")
        lanes = [self._nobody, *self._lanes.values()]
        counted = sum(lane.count for lane in lanes)
        if not self.num_free_blocks == counted == len(linked):
            found.append(f"{self.num_free_blocks} free blocks are counted, {len(linked)} are")
        homes = self._homes_of([blocks[number] for number, _ in linked])
        wrong = [
            number
            for (number, shelf), home in zip(linked, homes, strict=True)
            if shelf.home != home
        ]
        if wrong:
            found.append(f"free blocks {wrong} are in the wrong tier")
        return found

    # -- inside ------------------------------------------------------------------------------

    def _next(self, wanted: int) -> tuple[_Lane, int]:
        """Return the tenant to take from next, and the most blocks to take before the next
        choice."""
        if len(self._lanes) == 1:
            return next(iter(self._lanes.values())), wanted
        lane = self._giving
        if lane is None or not (self._left and lane.count):
            lane, self._left = self._choose()
            self._giving = lane
        most = min(wanted, self._left, lane.count)
        self._left -= most
        return lane, most

    def _choose(self) -> tuple[_Lane, int]:
        """Return the tenant with the most free blocks per weight, and how many it has above the
        next tenant. The number is bounded, since blocks freed meanwhile may change the choice."""
        best, best_load, second = None, -1.0, -1.0
        for lane in self._lanes.values():
            weight = self._weight(lane.tenant, self.reused)
            load = lane.count / weight if weight else float("inf")
            if load > best_load:
                best, best_load, second = lane, load, best_load
            elif load > second:
                second = load
        assert best is not None
        if best_load == float("inf"):
            return best, 16 * self._grain
        over = int(best.count - second * self._weight(best.tenant, self.reused))
        return best, min(max(self._grain, over), 16 * self._grain)

    def _take(self, lane: _Lane, most: int, taken: list[Any]) -> None:
        """Take blocks of a tenant, in the order of single removals. most: the number of blocks."""
        end = len(taken) + min(most, lane.count)
        while len(taken) < end:
            clock = self.reused + len(taken)
            if clock >= lane.ages_at:
                aged = self._aged(lane, clock)
                if aged is not None:
                    taken.append(aged.queue.popleft())
                    continue
            for shelf in lane.shelves:
                if shelf.queue.num_free_blocks:
                    break
            wanted = min(end - len(taken), shelf.queue.num_free_blocks, lane.ages_at - clock)
            if wanted == 1:
                taken.append(shelf.queue.popleft())
            else:
                taken.extend(shelf.queue.popleft_n(int(wanted)))

    def _aged(self, lane: _Lane, clock: int) -> _Tier | None:
        """Return the tier of a tenant whose next block has aged; None if no block has. In that
        case, set the clock at which the next block ages."""
        lane.ages_at = float("inf")
        for shelf in lane.shelves[1:-1]:
            first = shelf.queue.first()
            if first is not None:
                ages_at = self._freed[first.block_id] + self._ages + 1
                if ages_at <= clock:
                    lane.ages_at = clock
                    return shelf
                lane.ages_at = min(lane.ages_at, ages_at)
        return None

    def _shrink(self, lane: _Lane, count: int) -> None:
        lane.count -= count
        if not lane.count and lane is not self._nobody:
            del self._lanes[lane.tenant]

    def _put(self, home: Home, blocks: Sequence[Any]) -> None:
        lane = self._nobody
        if home != NOWHERE:
            known = self._lanes.get(home[0])
            if known is None:
                known = self._lanes[home[0]] = _Lane(home[0], self._make)
            lane = known
        shelf = lane.shelves[home[1]]
        numbers = [block.block_id for block in blocks]
        self._place.update(dict.fromkeys(numbers, shelf))
        self._freed.update(dict.fromkeys(numbers, self.reused))
        shelf.queue.append_n(blocks)
        lane.count += len(blocks)
        if 0 < home[1] < TIERS - 1:
            lane.ages_at = min(lane.ages_at, self.reused + self._ages + 1)

    def _shelves(self) -> Iterator[_Tier]:
        for lane in (self._nobody, *self._lanes.values()):
            yield from lane.shelves
