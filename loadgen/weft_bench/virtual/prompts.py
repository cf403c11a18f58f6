"""Prompts as an engine's KV cache sees them: the hashes of their blocks.

A part's tokens are consecutive numbers that start at a position derived from its name's digest. No
model reads them, so they need no vocabulary. Equal content has equal tokens and different content
different ones, which is all that vLLM's prefix cache compares.
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
# vLLM's cache appends the group of layers to a hash; there is one group.
_GROUP: Final = bytes(4)


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt as hashed blocks.

    parts: its parts. ends: the end of each part in tokens. hashes, keys: of the full blocks, in
    order; a key identifies a block in vLLM's cache. tail: tokens after the last full block.
    """

    parts: tuple[Part, ...]
    ends: list[int]
    hashes: list[bytes]
    keys: list[bytes]
    tail: list[int]

    @property
    def length(self) -> int:
        """Total number of tokens."""
        return self.ends[-1]


_NOTHING: Final = Prompt((), [], [], [], [])


@lru_cache(maxsize=65_536)
def place(name: str) -> int:
    """Return the first token of a name."""
    return int.from_bytes(sha256(name.encode()).digest()[:7], "big")


def tokens_of(parts: Sequence[Part], ends: Sequence[int], start: int) -> list[int]:
    """Return the tokens of a prompt from position `start` on. ends: the end of each part."""
    found: list[int] = []
    first = bisect_right(ends, start)
    for part, end in zip(parts[first:], ends[first:], strict=True):
        begin = place(part.name)
        passed = max(0, start - end + part.tokens)
        found.extend(range(begin + passed, begin + part.tokens))
    return found


def _hash(before: bytes, tokens: Sequence[int]) -> bytes:
    # A tuple of integers hashes alike in every process, and this is the fastest hash available.
    digest = hash((int.from_bytes(before, "big"), *tokens))
    return (digest & _MASK).to_bytes(8, "big")


@dataclass(slots=True)
class PromptBook:
    """Makes prompts. Each extends the last prompt of its program as far as both agree."""

    block_tokens: int
    _last: OrderedDict[str, Prompt] = field(default_factory=OrderedDict)

    def prompt(self, program: str, parts: tuple[Part, ...]) -> Prompt:
        """Return the prompt of these parts. program: whose last prompt to extend."""
        last = self._last.pop(f"program/{program}", _NOTHING)
        # Programs share prefixes, for example a system prompt.
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

    def _extend(self, known: Prompt, parts: tuple[Part, ...]) -> Prompt:
        same = len(known.parts)
        # Usually the parts have grown. Comparing tuples as a whole is much faster than one by one.
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
        """Return the hashes of the full blocks of these tokens, and the remaining tokens.

        before: the hash of the previous block.
        """
        size = self.block_tokens
        full = len(tokens) - len(tokens) % size
        found = []
        for start in range(0, full, size):
            before = _hash(before, tokens[start : start + size])
            found.append(before)
        return found, tokens[full:]

    def hasher(self, prompt: Prompt) -> Callable[[Any], list[bytes]]:
        """Return vLLM's `block_hasher` for a request with this prompt.

        It returns the missing hashes and appends their keys to the request's `block_keys`.
        """
        size = self.block_tokens

        def hash_blocks(request: Any) -> list[bytes]:
            known: list[bytes] = request.block_hashes
            answer: list[int] = request._output_token_ids
            if not known and not answer:
                request.block_keys = list(prompt.keys)
                return prompt.hashes
            # Tokens of the answer that are in hashed blocks.
            passed = len(known) * size - prompt.length
            if len(answer) - passed < size:
                return []
            tokens = prompt.tail[passed:] + answer if passed < 0 else answer[passed:]
            found, _ = self._hashes(known[-1] if known else _FIRST, tokens)
            request.block_keys += [h + _GROUP for h in found]
            return found

        return hash_blocks
