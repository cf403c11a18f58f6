"""The blocks in the host buffer and their slots. Pure: no torch, no vLLM.

A slot holds one block of all layers. Blocks are found by the hash of their content. A block stays
while a preempted sequence that owns it is alive. At a tenant's share, the tenant's least recently
used block is dropped; in a full buffer, the least recently used block of all tenants. A block is
used when a sequence that holds it is preempted. Copying it back is not a use.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush


@dataclass(slots=True)
class _StoredBlock:
    slot: int
    tenant: str
    owners: set[str] = field(default_factory=set)


class HostSlots:
    """`count` slots. tenant_share: the largest fraction that one tenant may use, above 0 to 1.

    Each method inspects only the blocks that it moves, because the scheduler waits for it.
    """

    def __init__(self, count: int, tenant_share: float = 1.0) -> None:
        # A heap: taking low slots first keeps free slots adjacent, and so transfers long.
        self._free = list(range(count))
        self._most = int(count * tenant_share) or min(count, 1)
        # Least recently used first, as in the tenants' lists.
        self._held: OrderedDict[Hashable, _StoredBlock] = OrderedDict()
        self._of_tenant: dict[str, OrderedDict[Hashable, None]] = {}
        self._owned: dict[str, set[Hashable]] = {}
        self.count = count
        self.dropped = 0

    def __len__(self) -> int:
        """Return the number of blocks in the buffer."""
        return len(self._held)

    def put(self, owner: str, tenant: str, contents: Sequence[Hashable]) -> list[tuple[int, int]]:
        """Store a preempted sequence's blocks, in the order of its context and without duplicates.
        Returns (index, slot) of those to copy now, both ascending. Blocks that are present only get
        another owner. If not all fit, the first ones stay, since a prefix is useful without its
        continuation."""
        wanted = contents[: self._most]
        keep = frozenset(wanted)
        fresh = [index for index, content in enumerate(wanted) if content not in self._held]
        for content in wanted:
            if content in self._held:
                self._own(owner, content)
        slots: list[int] = []
        while len(slots) < len(fresh):
            slot = self._take(tenant, len(slots), keep)
            if slot is None:
                break
            slots.append(slot)
        copies = list(zip(fresh, sorted(slots), strict=False))
        for index, slot in copies:
            self._held[wanted[index]] = _StoredBlock(slot, tenant)
            self._own(owner, wanted[index])
        # The first ones are touched last, so that the last ones are dropped first.
        for content in reversed(wanted):
            if content in self._held:
                self._touch(content)
        return copies

    def match(self, contents: Iterable[Hashable]) -> list[int]:
        """Return the slots of the longest stored prefix of these blocks."""
        found = []
        for content in contents:
            held = self._held.get(content)
            if held is None:
                break
            found.append(held.slot)
        return found

    def release(self, owner: str) -> None:
        """A sequence has ended: drop the blocks without another owner."""
        for content in list(self._owned.get(owner, ())):
            held = self._held[content]
            if held.owners == {owner}:
                self._drop(content)
            else:
                held.owners.discard(owner)
        self._owned.pop(owner, None)

    def clear(self) -> None:
        """Drop all blocks."""
        for content in list(self._held):
            self._drop(content)

    def violations(self) -> list[str]:
        """Return inconsistencies in words."""
        found = []
        slots = [held.slot for held in self._held.values()]
        if sorted(slots + self._free) != list(range(self.count)):
            found.append("a slot is missing or used twice")
        for tenant, contents in self._of_tenant.items():
            if list(contents) != [c for c, held in self._held.items() if held.tenant == tenant]:
                found.append(f"the list of tenant {tenant} does not match its blocks by age")
            if len(contents) > self._most:
                found.append(f"tenant {tenant} has more than its share")
        if sum(map(len, self._of_tenant.values())) != len(self._held):
            found.append("a block has no tenant")
        for content, held in self._held.items():
            if not held.owners:
                found.append("a block has no owner")
            if any(content not in self._owned.get(owner, ()) for owner in held.owners):
                found.append("an owner does not list its block")
        if any(content not in self._held for owned in self._owned.values() for content in owned):
            found.append("an owner lists a block that was dropped")
        return found

    def _own(self, owner: str, content: Hashable) -> None:
        self._held[content].owners.add(owner)
        self._owned.setdefault(owner, set()).add(content)
        self._touch(content)

    def _touch(self, content: Hashable) -> None:
        self._held.move_to_end(content)
        own = self._of_tenant.setdefault(self._held[content].tenant, OrderedDict())
        own[content] = None
        own.move_to_end(content)

    def _take(self, tenant: str, taken: int, keep: frozenset[Hashable]) -> int | None:
        """Return a free slot; None if none can be freed without a block of `keep`, which were
        touched last. taken: slots that the tenant has received but that are not recorded yet."""
        own = self._of_tenant.get(tenant, OrderedDict())
        full = len(own) + taken >= self._most
        if full or not self._free:
            victim = next(iter(own if full else self._held), None)
            if victim is None or victim in keep:
                return None
            self._drop(victim)
            self.dropped += 1
        return heappop(self._free)

    def _drop(self, content: Hashable) -> None:
        held = self._held.pop(content)
        for owner in held.owners:
            owned = self._owned[owner]
            owned.discard(content)
            if not owned:
                del self._owned[owner]
        own = self._of_tenant[held.tenant]
        del own[content]
        if not own:
            del self._of_tenant[held.tenant]
        heappush(self._free, held.slot)
