"""The contexts of an engine as a tree, in which the blocks that several contexts share count once.
Pure.

The hash of a KV block covers the blocks before it, so contexts with a common beginning have a
common beginning of hashes. A node is a run of blocks without a branch. It keeps 8 bytes of each
hash; contexts that agree in them by chance would be counted too low.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

# The two sums of a tree: contexts that stay between calls, and contexts that stay or are in use.
KEPT: Final = 0
HELD: Final = 1
_SUMS: Final = (KEPT, HELD)
_BYTES: Final = 8


class Node:
    """A run of blocks. hashes: of its blocks. contexts: the number that end here. holders: for each
    sum, the contexts that end here and count in it, and the children with such contexts."""

    __slots__ = ("children", "contexts", "hashes", "holders", "parent")

    def __init__(self, parent: Node | None, hashes: array[int]) -> None:
        self.parent = parent
        self.hashes = hashes
        self.children: dict[int, Node] = {}
        self.contexts = 0
        self.holders = [0, 0]


class Context:
    """A place in a tree. node: the last of its blocks with hashes. depth: their number. tail: its
    blocks without. holders: for each sum, how many reasons there are to count it."""

    __slots__ = ("depth", "holders", "node", "tail")

    def __init__(self, node: Node, depth: int, tail: int) -> None:
        self.node = node
        self.depth = depth
        self.tail = tail
        self.holders = [0, 0]

    @property
    def blocks(self) -> int:
        """All of its blocks."""
        return self.depth + self.tail


class ContextTree:
    """used: for each sum, the blocks of the contexts that count in it."""

    def __init__(self) -> None:
        self.used = [0, 0]
        self._root = Node(None, array("Q"))

    def add(self, chain: Sequence[bytes], blocks: int) -> Context:
        """Return a new context that counts in no sum. chain: the hashes of its full blocks. blocks:
        all of them."""
        node = self._at(chain)
        node.contexts += 1
        return Context(node, len(chain), max(0, blocks - len(chain)))

    def drop(self, context: Context) -> None:
        """Remove a context."""
        for kind in _SUMS:
            if context.holders[kind]:
                context.holders[kind] = 1
                self.release(context, kind)
        self._leave(context.node)

    def move(self, context: Context, chain: Sequence[bytes], blocks: int) -> None:
        """A context has become another one, usually a longer one."""
        node, depth, tail = context.node, context.depth, max(0, blocks - len(chain))
        if node.contexts == 1 and not node.children and depth and _extends(node, depth, chain):
            fresh = _short(chain, depth)
            node.hashes.extend(fresh)
            for kind in _SUMS:
                if context.holders[kind]:
                    self.used[kind] += len(fresh) + tail - context.tail
            context.depth, context.tail = len(chain), tail
            return
        moved = self.add(chain, blocks)
        for kind in _SUMS:
            if context.holders[kind]:
                self.hold(moved, kind)
                moved.holders[kind] = context.holders[kind]
        self.drop(context)
        context.node, context.holders = moved.node, moved.holders
        context.depth, context.tail = len(chain), tail

    def hold(self, context: Context, kind: int) -> None:
        """Count a context in a sum, for one more reason."""
        context.holders[kind] += 1
        if context.holders[kind] > 1:
            return
        self.used[kind] += context.tail
        for node in _upwards(context.node):
            node.holders[kind] += 1
            if node.holders[kind] > 1:
                return
            self.used[kind] += len(node.hashes)

    def release(self, context: Context, kind: int) -> None:
        """End a reason to count a context in a sum."""
        context.holders[kind] -= 1
        if context.holders[kind]:
            return
        self.used[kind] -= context.tail
        for node in _upwards(context.node):
            node.holders[kind] -= 1
            if node.holders[kind]:
                return
            self.used[kind] -= len(node.hashes)

    def adds(self, contexts: Iterable[Context], kind: int) -> int:
        """Return the blocks that a sum would grow by if it counted these contexts too."""
        found, seen = 0, set()
        for context in contexts:
            if not context.holders[kind]:
                found += context.tail
            for node in _upwards(context.node):
                if node.holders[kind] or node in seen:
                    break
                seen.add(node)
                found += len(node.hashes)
        return found

    def shared(self, context: Context, chain: Sequence[bytes]) -> int:
        """Return how many blocks with hashes a context has in common with another one."""
        end = 0
        for node in reversed(list(_upwards(context.node))):
            before = end
            end += len(node.hashes)
            if end > len(chain) or node.hashes[-1] != _key(chain[end - 1]):
                return before + _agree(node, chain, before)
        return end

    def violations(self) -> list[str]:
        """Return inconsistencies in words."""
        found, used = [], [0, 0]
        nodes = [self._root]
        for node in nodes:
            nodes += node.children.values()
            for kind in _SUMS:
                below = sum(bool(child.holders[kind]) for child in node.children.values())
                if not 0 <= node.holders[kind] - below <= node.contexts and node is not self._root:
                    found.append("a run of blocks has more holders than contexts")
                used[kind] += len(node.hashes) if node.holders[kind] else 0
            if node is not self._root and not node.contexts and len(node.children) < 2:
                found.append("a run of blocks has no end")
            for first, child in node.children.items():
                if child.parent is not node or child.hashes[0] != first:
                    found.append("a run of blocks is at a wrong place")
        if any(total < counted for total, counted in zip(self.used, used, strict=True)):
            found.append(f"contexts have {used} blocks with hashes, and {self.used} are counted")
        return found

    def _at(self, chain: Sequence[bytes]) -> Node:
        """Return the node that ends with this chain, created if necessary."""
        node, depth = self._root, 0
        while depth < len(chain):
            child = node.children.get(_key(chain[depth]))
            if child is None:
                fresh = Node(node, _short(chain, depth))
                node.children[fresh.hashes[0]] = fresh
                return fresh
            agreed = _agree(child, chain, depth)
            node = child if agreed == len(child.hashes) else _split(child, agreed)
            depth += agreed
        return node

    def _leave(self, node: Node) -> None:
        """A context ends here no more."""
        node.contexts -= 1
        parent = node.parent
        if node.contexts or parent is None:
            return
        if not node.children:
            del parent.children[node.hashes[0]]
            if parent is not self._root and not parent.contexts and len(parent.children) == 1:
                _join(parent)
        elif len(node.children) == 1:
            _join(node)


def _upwards(node: Node) -> Iterator[Node]:
    """Yield a node and those before it, without the root."""
    while node.parent is not None:
        yield node
        node = node.parent


def _key(content: bytes) -> int:
    return int.from_bytes(content[:_BYTES], sys.byteorder)


def _short(chain: Sequence[bytes], start: int) -> array[int]:
    found = array("Q")
    found.frombytes(b"".join([content[:_BYTES] for content in chain[start:]]))
    return found


def _extends(node: Node, depth: int, chain: Sequence[bytes]) -> bool:
    """Whether a chain begins with the blocks up to the end of a node at this depth."""
    return len(chain) >= depth and node.hashes[-1] == _key(chain[depth - 1])


def _agree(node: Node, chain: Sequence[bytes], start: int) -> int:
    """Return how many blocks of a node are those of a chain from `start` on. As each hash covers
    the blocks before it, blocks agree up to some place and not after it."""
    most = min(len(node.hashes), len(chain) - start)
    if most and node.hashes[most - 1] == _key(chain[start + most - 1]):
        return most
    places = range(most)
    return bisect_left(places, True, key=lambda at: node.hashes[at] != _key(chain[start + at]))


def _split(node: Node, at: int) -> Node:
    """Divide a run of blocks. Returns the first part, at which no context ends."""
    parent = node.parent
    assert parent is not None
    upper = Node(parent, node.hashes[:at])
    upper.holders = [int(bool(holders)) for holders in node.holders]
    parent.children[upper.hashes[0]] = upper
    node.hashes, node.parent = node.hashes[at:], upper
    upper.children[node.hashes[0]] = node
    return upper


def _join(node: Node) -> None:
    """Make a node and its only child one run."""
    (child,) = node.children.values()
    parent = node.parent
    assert parent is not None
    child.hashes, child.parent = node.hashes + child.hashes, parent
    parent.children[child.hashes[0]] = child
