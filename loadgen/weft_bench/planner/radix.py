"""The templated radix tree over rendered chat prompts (Helium 5 and appendix A). Pure.

A prompt is a sequence of runs: constant text and placeholders. Inner nodes hold tokens and
placeholders, leaves are calls. Two prompts share the path from the root to their lowest common
ancestor. An engine shares whole blocks, so a shared length is cut at the block size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from weft_run.plan.calls import PlannedCall
from weft_run.plan.prompts import (
    BLOCK_TOKENS,
    Prompt,
    Slot,
    Token,
    cut,
    estimate_tokens,
)

# Returns the tokens of a text. Equal prefixes must have equal tokens, as far as the tokenizer can.
Tokenizer = Callable[[str], Sequence[Token]]


@dataclass(slots=True, eq=False)
class Node:
    """A node of the tree. symbols: its tokens and placeholders. tokens: their number. end: tokens
    from the root to its end. axes: of all placeholders up to its end; a node without any is static.
    leaves: the calls whose prompts end here. number: in the order of creation.
    """

    number: int
    parent: Node | None
    symbols: tuple[Token, ...] = ()
    tokens: int = 0
    end: int = 0
    depth: int = 0
    axes: frozenset[str] = frozenset()
    leaves: list[str] = field(default_factory=list)
    children: dict[Token, Node] = field(default_factory=dict)

    @property
    def static(self) -> bool:
        """Whether the prompt up to the end of this node is the same in all rows."""
        return not self.axes

    @property
    def has_slot(self) -> bool:
        """Whether the node itself holds a placeholder whose content varies."""
        return any(isinstance(symbol, Slot) and symbol.axes for symbol in self.symbols)

    def path(self) -> list[Node]:
        """Return the nodes from below the root to this node."""
        found = []
        at: Node | None = self
        while at is not None and at.parent is not None:
            found.append(at)
            at = at.parent
        return found[::-1]


class RadixTree:
    """Prompts by prefix. Building takes time linear in the symbols of all prompts.

    tokenizer: of constant text. block: the engine's block size in tokens.
    """

    def __init__(self, tokenizer: Tokenizer = estimate_tokens, block: int = BLOCK_TOKENS) -> None:
        if block < 1:
            raise ValueError(f"the block size must be at least 1 token, got {block}")
        self._tokenizer = tokenizer
        self.block = block
        self.root = Node(0, None)
        self.nodes = [self.root]
        self._measured = 0
        # The node at which the prompt of a call ends, and that at which its answer ends.
        self.ends: dict[str, Node] = {}
        self.trails: dict[str, Node] = {}

    def add(self, call: str, prompt: Prompt, worker: str = "", answer: Slot | None = None) -> Node:
        """Insert the prompt of a call and return its node. worker: calls of different workers share
        no nodes. answer: the placeholder that the answer becomes in later prompts; the cache holds
        it behind the prompt. Raises ValueError for a name that was added before.
        """
        if call in self.ends:
            raise ValueError(f"call {call!r} is in the tree already")
        symbols = self._symbols(prompt)
        end = self._insert(symbols, worker)
        end.leaves.append(call)
        self.ends[call] = end
        self.trails[call] = end if answer is None else self._insert((*symbols, answer), worker)
        return end

    def leaf(self, call: str) -> Node:
        """Return the node of a call. A later insertion may have split it."""
        return self.ends[call]

    def walk(self) -> Iterator[Node]:
        """Yield all nodes, parents first, children in the order of insertion."""
        stack = [self.root]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(reversed(node.children.values()))

    def shared(self, before: Node, after: Node) -> int:
        """Return the tokens at the start that two nodes share, whole blocks only."""
        return cut(self.common(before, after).end, self.block)

    def common(self, one: Node, other: Node) -> Node:
        """Return the lowest common ancestor."""
        self._settle()
        while one is not other:
            if one.depth < other.depth:
                one, other = other, one
            assert one.parent is not None
            one = one.parent
        return one

    def _symbols(self, prompt: Prompt) -> tuple[Token, ...]:
        found: list[Token] = []
        for run in prompt:
            if isinstance(run, Slot):
                found.append(run)
            else:
                found.extend(self._tokenizer(run))
        return tuple(found)

    def _insert(self, symbols: tuple[Token, ...], worker: str) -> Node:
        at, done = self.root, 0
        key: Token = ("worker", worker, symbols[0] if symbols else None)
        while done < len(symbols):
            if at is not self.root:
                key = symbols[done]
            child = at.children.get(key)
            if child is None:
                return self._grow(at, key, symbols[done:])
            held = child.symbols
            if symbols[done : done + len(held)] != held:
                same = _common(held, symbols, done)
                child = self._split(child, key, same)
            at, done = child, done + len(child.symbols)
        return at

    def _grow(self, parent: Node, key: Token, symbols: tuple[Token, ...]) -> Node:
        node = Node(len(self.nodes), parent, symbols)
        parent.children[key] = node
        self.nodes.append(node)
        _measure(node)
        return node

    def _split(self, node: Node, key: Token, at: int) -> Node:
        """Put a new node above `node` with its first `at` symbols. Returns the new node."""
        assert node.parent is not None
        upper = Node(len(self.nodes), node.parent, node.symbols[:at])
        node.parent.children[key] = upper
        upper.children[node.symbols[at]] = node
        node.parent, node.symbols = upper, node.symbols[at:]
        self.nodes.append(upper)
        _measure(upper)
        _measure(node)
        return upper

    def _settle(self) -> None:
        """Set the depths, which splits change."""
        if self._measured == len(self.nodes):
            return
        for node in self.walk():
            node.depth = 0 if node.parent is None else node.parent.depth + 1
        self._measured = len(self.nodes)


def build_tree(
    calls: Sequence[PlannedCall],
    tokenizer: Tokenizer = estimate_tokens,
    block: int = BLOCK_TOKENS,
    workers: Mapping[str, str] | None = None,
) -> RadixTree:
    """Return the radix tree of calls. Calls of different models share nothing. workers: the worker
    of each call, if calls are partitioned.
    """
    tree = RadixTree(tokenizer, block)
    slots = {run.key: run for call in calls for run in call.prompt if isinstance(run, Slot)}
    for call in calls:
        label = call.model if workers is None else f"{workers[call.name]}/{call.model}"
        tree.add(call.name, call.prompt, label, slots.get(call.key) if call.key else None)
    return tree


def dependencies(calls: Sequence[PlannedCall]) -> dict[str, frozenset[str]]:
    """Return the direct and indirect dependencies of each call."""
    return indirect({call.name: call.needs for call in calls})


def indirect(needs: Mapping[str, Iterable[str]]) -> dict[str, frozenset[str]]:
    """Return the direct and indirect dependencies of each call, E' of the paper.

    needs: the direct ones, in topological order. Raises ValueError for a dependency that comes
    later or is unknown.
    """
    found: dict[str, frozenset[str]] = {}
    for name, direct in needs.items():
        known = set(direct)
        for one in direct:
            if one not in found:
                raise ValueError(f"{name!r} needs {one!r}, which does not come before it")
            known |= found[one]
        found[name] = frozenset(known)
    return found


def _measure(node: Node) -> None:
    parent = node.parent
    assert parent is not None
    slots = [symbol for symbol in node.symbols if isinstance(symbol, Slot)]
    node.tokens = len(node.symbols) - len(slots) + sum(slot.tokens for slot in slots)
    node.end = parent.end + node.tokens
    node.axes = parent.axes.union(*(slot.axes for slot in slots)) if slots else parent.axes


def _common(held: tuple[Token, ...], symbols: tuple[Token, ...], start: int) -> int:
    """Return the number of equal symbols at the start; at least one. Bisection, because comparing
    slices is much faster than comparing symbols.
    """
    low, high = 1, min(len(held), len(symbols) - start)
    while low < high:
        middle = (low + high + 1) // 2
        if held[:middle] == symbols[start : start + middle]:
            low = middle
        else:
            high = middle - 1
    return low
