"""KV blocks with prefix caching, found by the hashes of their content. Pure.

As in vLLM, a full block can be found by its hash until it is reused. Sequences may share blocks.
Free blocks are reused in the order in which they became free.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence


class BlockPool:
    """A pool of `count` blocks, all free and empty at first. Blocks are numbers from 0."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._users = [0] * count
        self._hash: list[int | None] = [None] * count
        self._known: dict[int, int] = {}
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(count))

    @property
    def free(self) -> int:
        """Number of unused blocks. Their content may still be found."""
        return len(self._free)

    def find(self, hashes: Sequence[int]) -> list[int]:
        """Return the blocks of the longest cached prefix."""
        found = []
        for each in hashes:
            block = self._known.get(each)
            if block is None:
                break
            found.append(block)
        return found

    def unused(self, blocks: Sequence[int]) -> int:
        """Return how many of the blocks are unused.

        Sharing them reduces the free blocks by as many.
        """
        return sum(not self._users[block] for block in blocks)

    def alone(self, blocks: Sequence[int]) -> int:
        """Return how many of the blocks have exactly one user."""
        return sum(self._users[block] == 1 for block in blocks)

    def share(self, blocks: Sequence[int]) -> None:
        """Use cached blocks."""
        for block in blocks:
            if not self._users[block]:
                del self._free[block]
            self._users[block] += 1

    def take(self, count: int) -> list[int]:
        """Take free blocks, longest free first, and forget their content.

        Raises ValueError if too few are free.
        """
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
        """Record the content of a full block, unless another block has the same content."""
        if content not in self._known:
            self._known[content] = block
            self._hash[block] = content

    def release(self, blocks: Sequence[int]) -> None:
        """Stop using the blocks. The last of them is the first to be reused."""
        for block in reversed(blocks):
            self._users[block] -= 1
            if not self._users[block]:
                self._free[block] = None

    def reset(self) -> None:
        """Forget the content of all blocks, also of those in use."""
        self._known.clear()
        self._hash = [None] * self.count

    def violations(self, used: Sequence[Sequence[int]]) -> list[str]:
        """Return the inconsistencies as text. used: the blocks of each sequence."""
        users = [0] * self.count
        for blocks in used:
            for block in blocks:
                users[block] += 1
        found = []
        if users != self._users:
            wrong = [b for b in range(self.count) if users[b] != self._users[b]]
            found.append(f"blocks counted wrongly: {wrong[:5]}")
        if set(self._free) != {b for b in range(self.count) if not self._users[b]}:
            found.append("the free blocks are not the unused blocks")
        if any(self._hash[block] != content for content, block in self._known.items()):
            found.append("a block is found by a hash of other content")
        return found

    def _forget(self, block: int) -> None:
        content = self._hash[block]
        if content is not None:
            del self._known[content]
            self._hash[block] = None
