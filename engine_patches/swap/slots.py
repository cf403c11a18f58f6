"""Which blocks are in the host buffer, and where. Pure: no torch, no vLLM.

A slot holds one block of all layers. Blocks are found by their content's hash. A block stays while
a displaced sequence that owns it is alive, until the buffer is full: then the least recently used
block of the tenant that is over its share goes, else the least recently used of all.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Held:
    slot: int
    tenant: str
    owners: set[str] = field(default_factory=set)


class HostSlots:
    """`count` slots. tenant_share: no tenant has more than this part of them, above 0 to 1."""

    def __init__(self, count: int, tenant_share: float = 1.0) -> None:
        self._free = list(range(count - 1, -1, -1))
        self._most = int(count * tenant_share) or min(count, 1)
        self._held: OrderedDict[Hashable, _Held] = OrderedDict()
        self._owned: dict[str, set[Hashable]] = {}
        self._used: dict[str, int] = {}
        self.count = count
        self.dropped = 0

    def __len__(self) -> int:
        """Blocks in the buffer."""
        return len(self._held)

    def put(self, owner: str, tenant: str, contents: Sequence[Hashable]) -> list[tuple[int, int]]:
        """A displaced sequence's blocks, first to last of its context: (index, slot) of those to
        copy now. Blocks that are here already are only owned once more; where there is no room for
        all, the first stay, since a prefix is of use without what follows it."""
        wanted = contents[: self._most]
        # The first ones are touched last, so that the last ones are dropped first.
        known = [content for content in wanted if content in self._held]
        for content in reversed(known):
            self._own(owner, content)
        copies = []
        fresh = set()
        for index, content in enumerate(wanted):
            if content in self._held:
                continue
            slot = self._take(tenant, protected=owner)
            if slot is None:
                break
            self._held[content] = _Held(slot, tenant)
            self._used[tenant] = self._used.get(tenant, 0) + 1
            self._own(owner, content)
            fresh.add(content)
            copies.append((index, slot))
        for content in reversed([c for c in wanted if c in fresh]):
            self._held.move_to_end(content)
        return copies

    def match(self, contents: Iterable[Hashable]) -> list[int]:
        """Slots of the longest run of these blocks from the first on."""
        found = []
        for content in contents:
            held = self._held.get(content)
            if held is None:
                break
            found.append(held.slot)
        return found

    def release(self, owner: str) -> None:
        """A sequence has ended: blocks that nobody else owns go."""
        for content in self._owned.pop(owner, ()):
            held = self._held.get(content)
            if held is not None:
                held.owners.discard(owner)
                if not held.owners:
                    self._drop(content)

    def clear(self) -> None:
        """Everything goes."""
        for content in list(self._held):
            self._drop(content)
        self._owned.clear()

    def violations(self) -> list[str]:
        """What is inconsistent, in words."""
        found = []
        slots = [held.slot for held in self._held.values()]
        if sorted(slots + self._free) != list(range(self.count)):
            found.append("a slot is lost or has two owners")
        for tenant, used in self._used.items():
            real = sum(held.tenant == tenant for held in self._held.values())
            if used != real:
                found.append(f"tenant {tenant} is counted {used} slots and has {real}")
            if used > self._most:
                found.append(f"tenant {tenant} has more than its share")
        for content, held in self._held.items():
            if not held.owners:
                found.append("a block has no owner")
            if any(content not in self._owned.get(owner, ()) for owner in held.owners):
                found.append("an owner does not know its block")
        return found

    def _own(self, owner: str, content: Hashable) -> None:
        self._held[content].owners.add(owner)
        self._owned.setdefault(owner, set()).add(content)
        self._held.move_to_end(content)

    def _take(self, tenant: str, protected: str) -> int | None:
        """A free slot, made free if need be, but not at the cost of what `protected` owns."""
        full = self._used.get(tenant, 0) >= self._most
        if full or not self._free:
            victim = next(
                (
                    content
                    for content, held in self._held.items()
                    if protected not in held.owners and (held.tenant == tenant or not full)
                ),
                None,
            )
            if victim is None:
                return None
            self._drop(victim)
            self.dropped += 1
        return self._free.pop()

    def _drop(self, content: Hashable) -> None:
        held = self._held.pop(content)
        for owner in held.owners:
            self._owned.get(owner, set()).discard(content)
        self._used[held.tenant] -= 1
        if not self._used[held.tenant]:
            del self._used[held.tenant]
        self._free.append(held.slot)
