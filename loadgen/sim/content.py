"""Prompts as parts that share exactly what the prompts share, whatever form a trace has them in."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from loadgen.fit import ReadyCall, message_bytes
from loadgen.schema import Part

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
