"""Which KV blocks are pinned, by which programs and until when. Pure: instants are handed in.

A block may be pinned by several programs and counts once. What is pinned is bounded, for each
tenant and for all together: the oldest pin of a tenant yields to its new one, so that pins can fill
their share but never block one another.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Final

# Ends of pins that were renewed or released: so many more than pins are kept before a clean-up.
_STALE_ENDS: Final = 64


@dataclass(slots=True)
class _Pin:
    """until: when it ends. tenant: of its program. blocks: ids, in the order of the program's
    context."""

    until: float
    tenant: str = ""
    blocks: dict[int, None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EndedPin:
    """A pin that was not released but ended. blocks: those that nobody pins any more, in the order
    of the program's context."""

    program: str
    blocks: list[int]


class Pins:
    """Pins of programs on blocks, by their ids. At most `limit` blocks are pinned at any time, and
    by a tenant at most its share of them. share: of a tenant, above 0 to 1, as of now."""

    def __init__(self, limit: int, share: Callable[[str], float] = lambda tenant: 1.0) -> None:
        self.limit = limit
        self._share = share
        # The oldest first.
        self._pins: OrderedDict[str, _Pin] = OrderedDict()
        # The programs that pin a block; the tenant of the first is charged for it.
        self._owners: dict[int, tuple[str, ...]] = {}
        self._charged: Counter[str] = Counter()
        self._ends: list[tuple[float, str]] = []

    def __len__(self) -> int:
        return len(self._pins)

    def __contains__(self, program: str) -> bool:
        return program in self._pins

    @property
    def blocks(self) -> Set[int]:
        """All blocks that are pinned."""
        return self._owners.keys()

    @property
    def tenants(self) -> Set[str]:
        """Tenants that are charged for a pinned block; a live view."""
        return self._charged.keys()

    def by_tenant(self) -> dict[str, int]:
        """Pinned blocks that each tenant is charged for. May be asked from another thread."""
        return dict(self._charged)

    def holds(self, block: int) -> bool:
        """Whether a block is pinned."""
        return block in self._owners

    def retain(self, program: str, until: float) -> None:
        """Begin or renew a program's pin, without blocks of its own yet. It is the newest now."""
        pin = self._pins.setdefault(program, _Pin(until))
        pin.until = until
        self._pins.move_to_end(program)
        heappush(self._ends, (until, program))
        if len(self._ends) > 2 * len(self._pins) + _STALE_ENDS:
            self._ends = [(pin.until, name) for name, pin in self._pins.items()]
            heapify(self._ends)

    def extend(
        self, program: str, blocks: Sequence[int], tenant: str = ""
    ) -> tuple[list[int], list[EndedPin]]:
        """Put blocks under a program's pin, first to last of its context, as many of the first as
        the limits allow. Where room is needed, older pins of the same tenant yield, and those of
        tenants that have more than their share; newer ones do not. Returns the blocks that nobody
        had pinned, and the pins that have yielded. KeyError if the program has no pin.
        """
        pin = self._pins[program]
        if pin.tenant != tenant:
            own = sum(self._owners[block][0] == program for block in pin.blocks)
            self._charge(pin.tenant, -own)
            self._charge(tenant, own)
            pin.tenant = tenant
        fresh, shared = list(blocks), list[int]()
        if not self._owners.keys().isdisjoint(blocks):
            fresh = [block for block in blocks if block not in self._owners]
            shared = [block for block in blocks if block in self._owners]
        for block in shared:
            if block not in pin.blocks:
                self._owners[block] += (program,)
                pin.blocks[block] = None
        yielded = []
        if fresh:
            mine = int(self.limit * self._share(tenant))
            yielded = self._make_room(program, tenant, len(fresh), mine)
            room = min(mine - self._charged[tenant], self.limit - len(self._owners))
            fresh = fresh[: max(0, room)]
            self._owners.update(dict.fromkeys(fresh, (program,)))
            pin.blocks.update(dict.fromkeys(fresh))
            self._charge(tenant, len(fresh))
        return fresh, yielded

    def loosen(self, program: str, blocks: Sequence[int]) -> list[int]:
        """Take blocks out from under a program's pin. Returns those that nobody pins any more."""
        pin = self._pins[program]
        alone = (program,)
        unpinned = [block for block in blocks if self._owners[block] == alone]
        shared = [block for block in blocks if self._owners[block] != alone]
        for block in unpinned:
            del self._owners[block]
        for block in shared:
            others = tuple(name for name in self._owners[block] if name != program)
            self._share_out(block, others)
        for block in blocks:
            del pin.blocks[block]
        self._charge(pin.tenant, -len(unpinned))
        return unpinned

    def of(self, program: str) -> list[int]:
        """The blocks under a program's pin, in the order of its context."""
        pin = self._pins.get(program)
        return [] if pin is None else list(pin.blocks)

    def release(self, program: str) -> list[int]:
        """End a program's pin, if it has one. Returns the blocks that nobody pins any more, in the
        order of its context."""
        if program not in self._pins:
            return []
        unpinned = self.loosen(program, self.of(program))
        del self._pins[program]
        return unpinned

    def expire(self, now: float) -> list[EndedPin]:
        """End the pins whose time is over."""
        ended = []
        while self._ends and self._ends[0][0] <= now:
            _, program = heappop(self._ends)
            pin = self._pins.get(program)
            if pin is not None and pin.until <= now:
                ended.append(EndedPin(program, self.release(program)))
        return ended

    def drop(self, block: int) -> None:
        """What a block held is gone, and with it all pins on it."""
        owners = self._owners.pop(block, ())
        for program in owners:
            del self._pins[program].blocks[block]
        if owners:
            self._charge(self._pins[owners[0]].tenant, -1)

    def clear(self) -> None:
        """End all pins."""
        self._pins.clear()
        self._owners.clear()
        self._charged.clear()
        self._ends.clear()

    def violations(self) -> list[str]:
        """What is inconsistent, in words."""
        found = []
        listed = {(program, block) for program, pin in self._pins.items() for block in pin.blocks}
        if listed != {(p, block) for block, owners in self._owners.items() for p in owners}:
            found.append("pins and the owners of blocks differ")
        if len(self._owners) > self.limit:
            found.append(f"{len(self._owners)} blocks are pinned, at most {self.limit} may be")
        if not {(pin.until, program) for program, pin in self._pins.items()} <= set(self._ends):
            found.append("a pin would never end")
        if self._charged != Counter(self._pins[o[0]].tenant for o in self._owners.values()):
            found.append("pinned blocks are charged to other tenants than those that pin them")
        return found

    def _make_room(self, program: str, tenant: str, wanted: int, mine: int) -> list[EndedPin]:
        """Older pins yield: the tenant's own to its limit, then any of tenants over their share."""
        yielded = []
        for other, older in list(self._pins.items()):
            if other == program:
                break
            own_full = self._charged[tenant] + wanted > mine
            added = min(wanted, max(0, mine - self._charged[tenant]))
            full = len(self._owners) + added > self.limit
            if not (own_full or full):
                break
            if not older.blocks:
                continue
            over = full and self._charged[older.tenant] > self.limit * self._share(older.tenant)
            if older.tenant == tenant or over:
                yielded.append(EndedPin(other, self.release(other)))
        return yielded

    def _share_out(self, block: int, owners: tuple[str, ...]) -> None:
        """Other programs keep a block pinned; the first of them is charged from now on."""
        before = self._pins[self._owners[block][0]].tenant
        after = self._pins[owners[0]].tenant
        self._owners[block] = owners
        if before != after:
            self._charge(before, -1)
            self._charge(after, 1)

    def _charge(self, tenant: str, blocks: int) -> None:
        self._charged[tenant] += blocks
        if not self._charged[tenant]:
            del self._charged[tenant]
