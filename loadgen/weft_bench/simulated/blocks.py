"""KV blocks with prefix caching, by hashes of what they hold. Pure.

As in vLLM: full blocks are found again by their hash until they are taken for something else,
blocks may be shared, and free ones are taken in the order in which they became free.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence


class BlockPool:
    """So many blocks, all free and empty. A block is a number from 0."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._users = [0] * count
        self._hash: list[int | None] = [None] * count
        self._known: dict[int, int] = {}
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(count))

    @property
    def free(self) -> int:
        """Unused blocks; what they hold may still be found."""
        return len(self._free)

    def find(self, hashes: Sequence[int]) -> list[int]:
        """The blocks that hold the beginning of this, as far as it is known."""
        found = []
        for each in hashes:
            block = self._known.get(each)
            if block is None:
                break
            found.append(block)
        return found

    def unused(self, blocks: Sequence[int]) -> int:
        """How many of them are unused: what sharing them would take from the free ones."""
        return sum(not self._users[block] for block in blocks)

    def alone(self, blocks: Sequence[int]) -> int:
        """How many of them have one user."""
        return sum(self._users[block] == 1 for block in blocks)

    def share(self, blocks: Sequence[int]) -> None:
        """Use blocks that were found."""
        for block in blocks:
            if not self._users[block]:
                del self._free[block]
            self._users[block] += 1

    def take(self, count: int) -> list[int]:
        """So many free blocks, the longest free first; what they held is forgotten. There must be
        as many: ValueError."""
        if count > len(self._free):
            raise ValueError(f"{count} blocks of {len(self._free)} free ones")
        taken = []
        for _ in range(count):
            block, _ = self._free.popitem(last=False)
            self._forget(block)
            self._users[block] = 1
            taken.append(block)
        return taken

    def hold(self, block: int, content: int) -> None:
        """A block is full now. Where another one holds the same already, that one is found."""
        if content not in self._known:
            self._known[content] = block
            self._hash[block] = content

    def release(self, blocks: Sequence[int]) -> None:
        """Stop to use them: the last is the first to be taken again."""
        for block in reversed(blocks):
            self._users[block] -= 1
            if not self._users[block]:
                self._free[block] = None

    def reset(self) -> None:
        """Forget what blocks hold, also those in use."""
        self._known.clear()
        self._hash = [None] * self.count

    def violations(self, used: Sequence[Sequence[int]]) -> list[str]:
        """What is wrong, in words. used: the blocks of each sequence."""
        users = [0] * self.count
        for blocks in used:
            for block in blocks:
                users[block] += 1
        found = []
        if users != self._users:
            wrong = [b for b in range(self.count) if users[b] != self._users[b]]
            found.append(f"blocks counted wrongly: {wrong[:5]}")
        if set(self._free) != {b for b in range(self.count) if not self._users[b]}:
            found.append("free blocks are not those that nobody uses")
        if any(self._hash[block] != content for content, block in self._known.items()):
            found.append("a block is known for what it does not hold")
        return found

    def _forget(self, block: int) -> None:
        content = self._hash[block]
        if content is not None:
            del self._known[content]
            self._hash[block] = None
