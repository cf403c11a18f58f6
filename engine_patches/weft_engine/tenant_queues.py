"""Whose waiting sequence is next where several tenants contend. Pure.

`TenantShares` says which tenant; inside a tenant the engine's order decides, as if that tenant were
alone. Each tenant's waiting sequences are kept in the order of their ranks while tenants contend,
and only those that moved are ranked again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from itertools import islice
from typing import Final

from weft_engine.call_table import DEFERRED, CallTable
from weft_engine.rank_index import RankIndex

# Sequences of one tenant beyond those wanted that are asked at one decision whether they could be
# admitted: the best ones, and as many further behind.
_ASKED: Final = 32


class TenantQueues:
    """Waiting sequences by tenant. dirty: tenants of which something moved since somebody asked."""

    def __init__(self, call_table: CallTable) -> None:
        self._calls = call_table
        self._queues: dict[str, RankIndex] = {}
        # Where to look next in the queues of tenants whose best sequences are not ready.
        self._further: dict[str, int] = {}
        self.dirty: set[str] = set()

    def invalidate(self, moved: Collection[str]) -> None:
        """These may wait, or not, or have other ranks, from now on."""
        shares = self._calls.shares
        for name in moved:
            if self._calls.of(name) is None:
                # It has left, and its tenant is not known.
                continue
            tenant = shares.tenant_of(name)
            self.dirty.add(tenant)
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
        """Tenants no longer contend: nothing is kept in order."""
        self._queues.clear()
        self._further.clear()
        self.dirty.clear()

    def of(self, tenant: str, start: int = 0) -> Iterator[str]:
        """The tenant's waiting sequences that are not held back, the best first. start: so many of
        the best are passed over."""
        shares, rank = self._calls.shares, self._calls.rank
        waiting = shares.waiting_of(tenant)
        queue = self._queues.get(tenant)
        # What was aborted is not told apart from what waits until the queue is built anew.
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

    def next(self, count: int, ready: Callable[[str], bool]) -> list[str]:
        """So many sequences that are to be served next, the first first. ready: whether the engine
        would admit a sequence now."""
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
        shares.restore(taken)
        return chosen

    def _ready(self, tenant: str, first: int, ready: Callable[[str], bool]) -> Iterator[str]:
        """The tenant's sequences that are ready: of the first ones, and of a few behind them. Where
        none is found there, the next decision looks further behind, so that each is asked in the
        end and no decision asks them all."""
        yield from filter(ready, islice(self.of(tenant), first))
        start = max(first, self._further.get(tenant, 0))
        asked, found = 0, False
        for name in islice(self.of(tenant, start), _ASKED):
            asked += 1
            if ready(name):
                found = True
                yield name
        if asked < _ASKED:
            # The end: from the beginning next time.
            self._further.pop(tenant, None)
        elif not found:
            self._further[tenant] = start + asked
