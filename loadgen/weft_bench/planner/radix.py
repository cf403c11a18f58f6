"""The templated radix tree over rendered chat prompts (Helium 5 and appendix A). Pure.

A prompt is a sequence of runs: constant text and placeholders. Inner nodes hold tokens and
placeholders, leaves are calls. Two prompts share the path from the root to their lowest common
ancestor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from weft_bench.planner.calls import PlannedCall, Prompt, Slot, Token, estimate_tokens

# Returns the tokens of a text. Equal prefixes must have equal tokens, as far as the tokenizer can.
Tokenizer = Callable[[str], Sequence[Token]]


@dataclass(slots=True, eq=False)
class Node:
    """A node of the tree.

    symbols: its tokens and placeholders. leaves: the calls whose prompts end here. number: in the
    order of creation.
    """

    number: int
    parent: Node | None
    symbols: tuple[Token, ...] = ()
    leaves: list[str] = field(default_factory=list)
    children: dict[Token, Node] = field(default_factory=dict)

    @property
    def has_slot(self) -> bool:
        """Whether the node itself holds a placeholder whose content varies."""
        return any(isinstance(symbol, Slot) and symbol.axes for symbol in self.symbols)


class RadixTree:
    """Prompts by prefix. Building takes time linear in the symbols of all prompts.

    tokenizer: of constant text.
    """

    def __init__(self, tokenizer: Tokenizer = estimate_tokens) -> None:
        self._tokenizer = tokenizer
        self.root = Node(0, None)
        self._count = 1
        # The node at which the prompt of a call ends.
        self.ends: dict[str, Node] = {}

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
        if answer is not None:
            self._insert((*symbols, answer), worker)
        return end

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
        node = self._node(parent, symbols)
        parent.children[key] = node
        return node

    def _split(self, node: Node, key: Token, at: int) -> Node:
        """Put a new node above `node` with its first `at` symbols. Returns the new node."""
        assert node.parent is not None
        upper = self._node(node.parent, node.symbols[:at])
        node.parent.children[key] = upper
        upper.children[node.symbols[at]] = node
        node.parent, node.symbols = upper, node.symbols[at:]
        return upper

    def _node(self, parent: Node, symbols: tuple[Token, ...]) -> Node:
        node = Node(self._count, parent, symbols)
        self._count += 1
        return node


def build_tree(
    calls: Sequence[PlannedCall],
    tokenizer: Tokenizer = estimate_tokens,
    workers: Mapping[str, str] | None = None,
) -> RadixTree:
    """Return the radix tree of calls. Calls of different models share nothing. workers: the worker
    of each call, if calls are partitioned.
    """
    tree = RadixTree(tokenizer)
    slots = {run.key: run for call in calls for run in call.prompt if isinstance(run, Slot)}
    for call in calls:
        label = call.model if workers is None else f"{workers[call.name]}/{call.model}"
        tree.add(call.name, call.prompt, label, slots.get(call.key) if call.key else None)
    return tree


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
