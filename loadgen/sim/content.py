"""Token ids that share exactly what prompts share, and the hashes of their KV blocks.

A part's tokens follow from its name: consecutive numbers from a place that the name's digest gives.
No model reads them, so they need be of no vocabulary; what matters is that equal content has equal
tokens and other content others, since vLLM's prefix cache compares hashes of them.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from itertools import pairwise
from typing import Any, Final

from loadgen.fit import ReadyCall, message_bytes
from loadgen.schema import Part

_KEPT_PROMPTS: Final = 8192
_MASK: Final = 2**64 - 1
_FIRST: Final = bytes(8)


@dataclass(frozen=True, slots=True)
class Prompt:
    """tokens: all of them. ends: where each part ends. hashes: of the full blocks, in order."""

    parts: tuple[Part, ...]
    tokens: list[int]
    ends: list[int]
    hashes: list[bytes]


_NOTHING: Final = Prompt((), [], [], [])


# Size and digest of messages that were met before, by their identity; they must stay alive.
Seen = dict[int, tuple[int, str]]


def parts_of(call: ReadyCall, seen: Seen, bytes_per_token: float) -> tuple[Part, ...]:
    """A call's prompt as parts, whatever form the trace has it in; `call.prompt_tokens` in all.
    seen: kept over the calls of a program, whose messages come again with each of them.
    bytes_per_token: what the program's lengths were estimated with.

    Messages are known by their content. Token ids are one part a block of 16, known by the ids
    before and in it: what two prompts begin with in common is found block by block.
    """
    trace = call.call
    if trace.parts:
        return trace.parts
    if trace.prompt_ids:
        return _of_ids(trace.prompt_ids)
    return _of_messages(trace.messages, seen, bytes_per_token)


def _of_ids(ids: Sequence[int]) -> tuple[Part, ...]:
    found = []
    digest = sha256()
    for start in range(0, len(ids), 16):
        block = ids[start : start + 16]
        digest.update(repr(block).encode())
        found.append(Part(f"ids/{digest.hexdigest()}", len(block)))
    return tuple(found)


def _of_messages(
    messages: Sequence[Mapping[str, Any]], seen: Seen, bytes_per_token: float
) -> tuple[Part, ...]:
    for message in messages:
        if id(message) not in seen:
            text = json.dumps(message, sort_keys=True, default=str)
            digest = sha256(text.encode()).hexdigest()
            seen[id(message)] = (message_bytes([message]), digest)
    found = []
    passed = reach = 0
    for message in messages:
        size, digest = seen[id(message)]
        passed += size
        # Where a message ends must follow from what is before it alone: prompts share prefixes.
        before, reach = reach, round(passed / bytes_per_token)
        if reach > before:
            found.append(Part(f"message/{digest}", reach - before, str(message.get("role", ""))))
    return tuple(found)


@lru_cache(maxsize=65_536)
def place(name: str) -> int:
    """Where the tokens of a name begin."""
    return int.from_bytes(sha256(name.encode()).digest()[:7], "big")


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

    def _extend(self, known: Prompt, parts: tuple[Part, ...]) -> Prompt:
        same = 0
        for mine, theirs in zip(known.parts, parts, strict=False):
            if mine != theirs:
                break
            same += 1
        ends = known.ends[:same]
        reach = ends[-1] if ends else 0
        tokens = known.tokens[:reach]
        for part in parts[same:]:
            first = place(part.name)
            tokens.extend(range(first, first + part.tokens))
            ends.append(len(tokens))
        hashes = known.hashes[: reach // self.block_tokens]
        before = hashes[-1] if hashes else _FIRST
        size = self.block_tokens
        for start, end in pairwise(range(len(hashes) * size, len(tokens) + 1, size)):
            before = _hash(before, tokens[start:end])
            hashes.append(before)
        return Prompt(parts, tokens, ends, hashes)

    def hasher(self, prompt: Prompt) -> Callable[[Any], list[bytes]]:
        """vLLM's `block_hasher` of a request with this prompt: the hashes that it lacks."""
        size = self.block_tokens

        def hash_blocks(request: Any) -> list[bytes]:
            known: list[bytes] = request.block_hashes
            tokens: list[int] = request._all_token_ids
            if (len(known) + 1) * size > len(tokens):
                return []
            if not known and prompt.hashes:
                return prompt.hashes
            start = len(known) * size
            found = []
            before = known[-1] if known else _FIRST
            for end in range(start + size, len(tokens) + 1, size):
                before = _hash(before, tokens[end - size : end])
                found.append(before)
            return found

        return hash_blocks
