"""The waiting sequences of each tenant while several tenants contend. Pure.

`TenantShares` selects the tenant; within a tenant the engine's order decides. Each tenant's waiting
sequences stay sorted by rank, and only those that moved are ranked again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from itertools import islice
from typing import Final

from weft_engine.call_table import DEFERRED, CallTable
from weft_engine.rank_index import RankIndex

# In one decision, readiness is checked for this many sequences of a tenant beyond the wanted ones,
# and for as many further back in its queue.
_ASKED: Final = 32


class TenantQueues:
    """Waiting sequences by tenant. dirty: tenants that changed since their last preemption, the
    first one first."""

    def __init__(self, call_table: CallTable) -> None:
        self._calls = call_table
        self._queues: dict[str, RankIndex] = {}
        # The position to check next in the queues of tenants whose first sequences are not ready.
        self._further: dict[str, int] = {}
        self.dirty: dict[str, None] = {}

    def invalidate(self, moved: Collection[str]) -> None:
        """These sequences may have started or stopped waiting, or have other ranks."""
        shares = self._calls.shares
        for name in moved:
            if self._calls.of(name) is None:
                # It has left, and its tenant is unknown.
                continue
            tenant = shares.tenant_of(name)
            self.dirty[tenant] = None
            queue = self._queues.get(tenant)
            if queue is None:
                continue
            if name not in shares.waiting_of(tenant):
                queue.discard(name)
            elif name in queue:
                queue.invalidate((name,))
            else:
                queue.add(name)

    def clear(self) -> None:
        """Tenants no longer contend: drop all queues."""
        self._queues.clear()
        self._further.clear()
        self.dirty.clear()

    def of(self, tenant: str, start: int = 0) -> Iterator[str]:
        """The tenant's waiting sequences that are not deferred, by rank, from `start` on."""
        shares, rank = self._calls.shares, self._calls.rank
        waiting = shares.waiting_of(tenant)
        queue = self._queues.get(tenant)
        # Aborted sequences stay in the index until it is rebuilt.
        if queue is None or len(queue) > 2 * len(waiting) + _ASKED:
            queue = self._queues[tenant] = RankIndex(rank)
            queue.fill(waiting)
        for name in queue.ordered(start):
            # It may have been aborted while it waited.
            if name not in waiting:
                continue
            if rank(name)[0] == DEFERRED:
                return
            yield name

    def next(
        self,
        count: int,
        ready: Callable[[str], bool],
        fits: Callable[[str], bool] | None = None,
    ) -> list[str]:
        """The next sequences to serve, in order. ready: whether the engine would admit one now.
        fits: whether the blocks of the first one may suffice. If not, it is the only one, because
        vLLM admits no request past it."""
        shares = self._calls.shares
        taken: dict[str, int] = {}
        without: set[str] = set()
        queues: dict[str, Iterator[str]] = {}
        chosen: list[str] = []
        while len(chosen) < count:
            tenant = shares.next(taken, without)
            if tenant is None:
                break
            queue = queues.get(tenant)
            if queue is None:
                queue = queues[tenant] = self._ready(tenant, count + _ASKED, ready)
            name = next(queue, None)
            if name is None:
                without.add(tenant)
                continue
            chosen.append(name)
            taken[tenant] = taken.get(tenant, 0) + 1
            if fits is not None and len(chosen) == 1 and not fits(name):
                break
        shares.restore(taken)
        return chosen

    def _ready(self, tenant: str, first: int, ready: Callable[[str], bool]) -> Iterator[str]:
        """The tenant's ready sequences among the first ones and a few further back. If none of the
        latter is ready, the next decision looks further back, so that every sequence is checked in
        the end and no decision checks all of them."""
        yield from filter(ready, islice(self.of(tenant), first))
        start = max(first, self._further.get(tenant, 0))
        asked, found = 0, False
        for name in islice(self.of(tenant, start), _ASKED):
            asked += 1
            if ready(name):
                found = True
                yield name
        if asked < _ASKED:
            # The end of the queue: start over next time.
            self._further.pop(tenant, None)
        elif not found:
            self._further[tenant] = start + asked
