"""vLLM's queue of free KV blocks, by tenants and tiers. Pure: blocks and queues are handed in.

A block is taken from the tenant that holds most of the cache for its weight, and of its blocks from
the lowest tier, the least recently used first. So what a tenant says about its blocks orders its
own blocks only. What has lain unused while the whole cache was reused several times goes first,
whatever its tier.

The queue has the methods of vLLM's own and stands in its place. Each tier of a tenant is one of
vLLM's own queues, a linked list through the blocks, so that everything stays O(1) a block.
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
    """The free blocks of a tenant, lowest tier first. count: how many there are. ages_at: no block
    has aged while the clock is below this value."""

    __slots__ = ("ages_at", "count", "shelves", "tenant")

    def __init__(self, tenant: str | None, make: Callable[[], Any]) -> None:
        self.tenant = tenant
        self.count = 0
        self.ages_at = float("inf")
        self.shelves = [_Tier(self, tier, make()) for tier in range(TIERS)]


class PriorityFreeQueue:
    """Free blocks by home, a tenant and a tier.

    make: an empty queue of vLLM's kind that has `first` and `remove_n`. homes_of: the home of each
    of some blocks that are freed with something in them. on_reuse: told which blocks were taken and
    will hold something else. blocks: those that are free now, in their order; they belong to no
    tenant. weight: of a tenant; 0 for idle ones, whose blocks go before those of active ones. ages:
    a block in a tier above the lowest and below the pins is reused first of its tenant's when so
    many blocks were reused since it was freed. grain: blocks that a tenant gives before another one
    is looked for, which takes time for each tenant.

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
        # The tenant that gives at present, and how many blocks more.
        self._giving: _Lane | None = None
        self._left = 0
        self._nobody = _Lane(None, make)
        # Tenants with free blocks.
        self._lanes: dict[str | None, _Lane] = {}
        # Where each free block is, by its id: a block knows its neighbours, not its queue.
        self._place: dict[int, _Tier] = {}
        # The clock when each block was freed.
        self._freed: dict[int, int] = {}
        self.reused = 0
        # All together; vLLM reads it for every sequence in every step.
        self.num_free_blocks = 0
        self.prepend_n(list(blocks))

    def popleft(self) -> Any:
        """The block to reuse first. ValueError if none is free."""
        if not self.num_free_blocks:
            raise ValueError("No free blocks available")
        return self.popleft_n(1)[0]

    def popleft_n(self, n: int) -> list[Any]:
        """The n blocks to reuse first; there must be so many."""
        assert self.num_free_blocks >= n, (self.num_free_blocks, n)
        taken: list[Any] = []
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
        """Take a free block out, wherever it is. RuntimeError if it is not free."""
        if block.block_id not in self._place:
            raise RuntimeError(f"remove() called on an invalid block: {block}")
        self.remove_n((block,))

    def remove_n(self, blocks: Sequence[Any]) -> None:
        """Take several blocks out. KeyError if one is not free."""
        shelves = list(map(self._place.pop, [block.block_id for block in blocks]))
        for shelf, begun, end in runs_of(shelves):
            shelf.queue.remove_n(blocks[begun:end])
            self._shrink(shelf.lane, end - begun)
        self.num_free_blocks -= len(blocks)

    def append(self, block: Any) -> None:
        """A block was freed: the last of its tier."""
        self.append_n((block,))

    def append_n(self, blocks: Sequence[Any]) -> None:
        """Several blocks were freed, the first to be reused first."""
        for home, begun, end in runs_of(self._homes_of(blocks)):
            self._put(home, blocks[begun:end])
        self.num_free_blocks += len(blocks)

    def prepend_n(self, blocks: Sequence[Any]) -> None:
        """Blocks with nothing in them were freed: they are the first to be reused."""
        shelf = self._nobody.shelves[0]
        shelf.queue.prepend_n(list(blocks))
        self._place.update(dict.fromkeys([block.block_id for block in blocks], shelf))
        self._nobody.count += len(blocks)
        self.num_free_blocks += len(blocks)

    def get_all_free_blocks(self) -> list[Any]:
        """Tenant by tenant, each in the order in which its blocks are reused as long as none has
        aged."""
        return [b for shelf in self._shelves() for b in shelf.queue.get_all_free_blocks()]

    def iter_blocks_after(self, cursor: Any) -> Iterator[Any]:
        """Free blocks in the order of `get_all_free_blocks`, those after a free block, or all for
        None."""
        at = None if cursor is None else self._place[cursor.block_id]
        for shelf in self._shelves():
            if at is None:
                yield from shelf.queue.iter_blocks_after(None)
            elif shelf is at:
                yield from shelf.queue.iter_blocks_after(cursor)
                at = None

    def retier_n(self, blocks: Sequence[Any]) -> None:
        """What is known of these blocks has changed: put those that are free into their homes.
        There they count as just used, in this order."""
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
            # Blocks of a context come deepest first here, and leave the quickest the other way.
            shelf.queue.remove_n(run[::-1])
            self._shrink(shelf.lane, len(run))
        for _, home, run in moved:
            self._put(home, run)

    def counts(self) -> list[int]:
        """Free blocks in each tier, over all tenants."""
        found = [0] * TIERS
        for shelf in self._shelves():
            found[shelf.home[1]] += shelf.queue.num_free_blocks
        return found

    def violations(self, blocks: Sequence[Any]) -> list[str]:
        """What is inconsistent between this queue and all blocks of the cache, in words."""
        linked = [
            (block.block_id, shelf)
            for shelf in self._shelves()
            for block in shelf.queue.get_all_free_blocks()
        ]
        unused = {b.block_id for b in blocks if not b.ref_cnt and not b.is_null}
        found = []
        if len(linked) != len(self._place) or dict(linked) != self._place:
            found.append("free blocks are not in the tiers that are noted for them")
        if unused != self._place.keys():
            found.append("the free blocks are not those that nobody uses")
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
            found.append(f"free blocks {wrong} are in the tier of something else")
        return found

    # -- inside ------------------------------------------------------------------------------

    def _next(self, wanted: int) -> tuple[_Lane, int]:
        """The tenant to take from next, and how many blocks at most before others are asked."""
        if self._nobody.count:
            return self._nobody, wanted
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
        """The tenant that holds most for its weight, and the blocks until it holds no more than the
        next one. Frees in between may change that, so that they are not too many."""
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
        """Take so many blocks of a tenant, as if one by one."""
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
        """The tier of a tenant whose next block has aged, if there is one. Otherwise sets the clock
        at which the next block ages."""
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
