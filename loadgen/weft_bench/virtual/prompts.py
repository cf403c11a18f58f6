"""Prompts as an engine's KV cache knows them: the hashes of their blocks.

A part's tokens follow from its name: consecutive numbers from a place that the name's digest gives.
No model reads them, so they need be of no vocabulary; what matters is that equal content has equal
tokens and other content others, since vLLM's prefix cache compares hashes of them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from itertools import takewhile
from operator import eq
from typing import Any, Final

from weft_bench.workloads.schema import Part

_KEPT_PROMPTS: Final = 8192
_MASK: Final = 2**64 - 1
_FIRST: Final = bytes(8)
# What vLLM's cache appends to a hash: the group of layers, of which there is one.
_GROUP: Final = bytes(4)


@dataclass(frozen=True, slots=True)
class Prompt:
    """parts: what it is made of. ends: where each part ends. hashes, keys: of the full blocks, in
    order; a key is what vLLM's cache calls a block. tail: tokens after the last full block."""

    parts: tuple[Part, ...]
    ends: list[int]
    hashes: list[bytes]
    keys: list[bytes]
    tail: list[int]

    @property
    def length(self) -> int:
        """Tokens in all."""
        return self.ends[-1]


_NOTHING: Final = Prompt((), [], [], [], [])


@lru_cache(maxsize=65_536)
def place(name: str) -> int:
    """Where the tokens of a name begin."""
    return int.from_bytes(sha256(name.encode()).digest()[:7], "big")


def tokens_of(parts: Sequence[Part], ends: Sequence[int], start: int) -> list[int]:
    """The tokens of a prompt of these parts from a position on. ends: where each part ends."""
    found: list[int] = []
    first = bisect_right(ends, start)
    for part, end in zip(parts[first:], ends[first:], strict=True):
        begin = place(part.name)
        passed = max(0, start - end + part.tokens)
        found.extend(range(begin + passed, begin + part.tokens))
    return found


def _hash(before: bytes, tokens: Sequence[int]) -> bytes:
    # A tuple of whole numbers hashes alike in every process, and as fast as anything can here.
    digest = hash((int.from_bytes(before, "big"), *tokens))
    return (digest & _MASK).to_bytes(8, "big")


@dataclass(slots=True)
class PromptBook:
    """Makes prompts, each from the last one of its program as far as both agree."""

    block_tokens: int
    _last: OrderedDict[str, Prompt] = field(default_factory=OrderedDict)

    def prompt(self, program: str, parts: tuple[Part, ...]) -> Prompt:
        """The prompt of these parts. program: where to look for one that begins alike."""
        last = self._last.pop(f"program/{program}", _NOTHING)
        # Programs share how they begin, as a system prompt.
        head = f"part/{parts[0].name}"
        if last.parts[:1] != parts[:1]:
            last = self._last.get(head, _NOTHING)
        made = self._extend(last, parts)
        self._last[f"program/{program}"] = made
        if head not in self._last:
            self._last[head] = self._extend(made, parts[:1])
        self._last.move_to_end(head)
        while len(self._last) > _KEPT_PROMPTS:
            self._last.popitem(last=False)
        return made

    def of_tokens(self, tokens: list[int]) -> Prompt:
        """The prompt of these tokens, which follow from no names."""
        hashes, rest = self._hashes(_FIRST, tokens)
        return Prompt((), [len(tokens)], hashes, [h + _GROUP for h in hashes], rest)

    def _extend(self, known: Prompt, parts: tuple[Part, ...]) -> Prompt:
        same = len(known.parts)
        # Most often the parts have grown; tuples are compared far faster at once.
        if parts[:same] != known.parts:
            same = sum(1 for _ in takewhile(bool, map(eq, known.parts, parts)))
        ends = known.ends[:same]
        reach = ends[-1] if ends else 0
        kept = reach // self.block_tokens
        for part in parts[same:]:
            reach += part.tokens
            ends.append(reach)
        hashes, keys = known.hashes[:kept], known.keys[:kept]
        tokens = tokens_of(parts, ends, kept * self.block_tokens)
        fresh, tail = self._hashes(hashes[-1] if hashes else _FIRST, tokens)
        hashes += fresh
        keys += [h + _GROUP for h in fresh]
        return Prompt(parts, ends, hashes, keys, tail)

    def _hashes(self, before: bytes, tokens: list[int]) -> tuple[list[bytes], list[int]]:
        """The hashes of the full blocks that these tokens begin with, and the tokens after them.
        before: the hash of the block before."""
        size = self.block_tokens
        full = len(tokens) - len(tokens) % size
        found = []
        for start in range(0, full, size):
            before = _hash(before, tokens[start : start + size])
            found.append(before)
        return found, tokens[full:]

    def hasher(self, prompt: Prompt) -> Callable[[Any], list[bytes]]:
        """vLLM's `block_hasher` of a request with this prompt: the hashes that it lacks. Their keys
        are in the request's `block_keys`."""
        size = self.block_tokens

        def hash_blocks(request: Any) -> list[bytes]:
            known: list[bytes] = request.block_hashes
            answer: list[int] = request._output_token_ids
            if not known and not answer:
                request.block_keys = list(prompt.keys)
                return prompt.hashes
            # How much of the answer is in blocks that are hashed.
            passed = len(known) * size - prompt.length
            if len(answer) - passed < size:
                return []
            tokens = prompt.tail[passed:] + answer if passed < 0 else answer[passed:]
            found, _ = self._hashes(known[-1] if known else _FIRST, tokens)
            request.block_keys += [h + _GROUP for h in found]
            return found

        return hash_blocks
