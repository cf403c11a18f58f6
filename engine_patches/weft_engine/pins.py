"""Pinned KV blocks with their programs and expiry times. Pure: callers pass the time.

Several programs may pin the same block, which counts once. The number of pinned blocks is bounded
per tenant and in total. A tenant's new pin replaces its oldest one, so pins can fill their share
but never block one another.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field

from weft_engine.deadlines import Deadlines


@dataclass(slots=True)
class _Pin:
    """tenant: the program's tenant. blocks: ids in the order of the context."""

    tenant: str = ""
    blocks: dict[int, None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EndedPin:
    """A pin that ended without a release. blocks: those without another pin, in the order of the
    context."""

    program: str
    blocks: list[int]


class Pins:
    """Pins of programs on blocks, by block id. At most `limit` blocks are pinned, and a tenant pins
    at most its share of them. share: a tenant's current share, above 0 to 1."""

    def __init__(self, limit: int, share: Callable[[str], float] = lambda tenant: 1.0) -> None:
        self.limit = limit
        self._share = share
        # Oldest first.
        self._pins: OrderedDict[str, _Pin] = OrderedDict()
        # The programs that pin a block. The tenant of the first one is charged for it.
        self._owners: dict[int, tuple[str, ...]] = {}
        self._charged: Counter[str] = Counter()
        self._ends = Deadlines()

    def __len__(self) -> int:
        return len(self._pins)

    def __contains__(self, program: str) -> bool:
        return program in self._pins

    @property
    def blocks(self) -> Set[int]:
        """All pinned blocks."""
        return self._owners.keys()

    @property
    def tenants(self) -> Set[str]:
        """Tenants that are charged for pinned blocks; a live view."""
        return self._charged.keys()

    def by_tenant(self) -> dict[str, int]:
        """Return the pinned blocks charged to each tenant. Safe to call from another thread."""
        return dict(self._charged)

    def holds(self, block: int) -> bool:
        """Whether a block is pinned."""
        return block in self._owners

    def retain(self, program: str, until: float) -> None:
        """Create or renew a program's pin and make it the newest. A new pin has no blocks yet."""
        self._pins.setdefault(program, _Pin())
        self._pins.move_to_end(program)
        self._ends.set(program, until)

    def extend(
        self, program: str, blocks: Sequence[int], tenant: str = ""
    ) -> tuple[list[int], list[EndedPin]]:
        """Add blocks of a context, first to last, to a program's pin, as many as the limits allow.
        To make room, older pins of the same tenant end first, then older pins of tenants above
        their share; newer pins never do. Returns the blocks that had no pin before, and the pins
        that ended. KeyError if the program has no pin."""
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
        """Remove blocks from a program's pin. Returns those without any pin now."""
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
        """Return the blocks of a program's pin in the order of its context."""
        pin = self._pins.get(program)
        return [] if pin is None else list(pin.blocks)

    def release(self, program: str) -> list[int]:
        """End a program's pin, if any. Returns the blocks without any pin now, in the order of its
        context."""
        if program not in self._pins:
            return []
        unpinned = self.loosen(program, self.of(program))
        del self._pins[program]
        self._ends.drop(program)
        return unpinned

    def expire(self, now: float) -> list[EndedPin]:
        """End the expired pins."""
        return [EndedPin(program, self.release(program)) for program in self._ends.due(now)]

    def drop(self, block: int) -> None:
        """Remove all pins on a block that has lost its content."""
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
        """Return inconsistencies in words."""
        found = []
        listed = {(program, block) for program, pin in self._pins.items() for block in pin.blocks}
        if listed != {(p, block) for block, owners in self._owners.items() for p in owners}:
            found.append("pins and the owners of blocks differ")
        if len(self._owners) > self.limit:
            found.append(f"{len(self._owners)} blocks are pinned, at most {self.limit} may be")
        if len(self._ends) != len(self._pins):
            found.append("pins and their expiry times differ")
        if self._charged != Counter(self._pins[o[0]].tenant for o in self._owners.values()):
            found.append("pinned blocks are charged to the wrong tenants")
        return found

    def _make_room(self, program: str, tenant: str, wanted: int, mine: int) -> list[EndedPin]:
        """End older pins: the tenant's pins up to its limit, then pins of tenants above their
        share."""
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
        """Keep the block pinned by these programs and charge the first one's tenant."""
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
