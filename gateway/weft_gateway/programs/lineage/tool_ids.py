"""Ids of tool calls. The engine generates one per call, and the client returns it with the result.
Pure.

A random id identifies its program, because no other program has it. Clients and engines also use
counters (`call_0`, `functions.search:1`), which identify nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from hashlib import sha1
from itertools import islice
from typing import Any, Final

from weft_gateway.transcripts.transcript import latest

# Maximum ids per request; the last ones are used.
MAX_IDS: Final = 16
# Messages, or items, that are searched for ids.
_LOOKED_AT: Final = 64
_MAX_BYTES: Final = 256
# 16 hexadecimal digits have 64 bits.
_RUN: Final = re.compile(r"[0-9A-Za-z]{16,}")
_UUID: Final = re.compile(
    r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
)
_CHANGE: Final = re.compile(r"(?<=[0-9])(?=[A-Za-z])|(?<=[A-Za-z])(?=[0-9])")
_LEAST_CHANGES: Final = 3
_LEAST_LETTERS: Final = 7


def is_random(name: str) -> bool:
    """Whether an id looks random: 16 letters and digits in a row, or a UUID, with at least 7
    different characters and 3 changes between letters and digits. A few percent of random ids fail
    the test and are not used. Numbers, words, and words with a number always fail it.
    """
    if len(name) > _MAX_BYTES:
        return False
    found = _UUID.search(name) or _RUN.search(name)
    if found is None:
        return False
    drawn = found[0]
    return len(set(drawn)) >= _LEAST_LETTERS and len(_CHANGE.findall(drawn)) >= _LEAST_CHANGES


def fingerprint(name: str) -> int:
    """Return the fingerprint under which an id is stored."""
    digest = sha1(b"id\x1d" + name.encode("utf-8", "surrogatepass"), usedforsecurity=False).digest()
    return int.from_bytes(digest[:8])


def asked_ids(body: Mapping[str, Any]) -> list[int]:
    """Return fingerprints of the random ids in a request of any API, the last ones first."""
    held = body.get("messages", body.get("input"))
    found: dict[int, None] = {}
    for item in islice(latest(held), _LOOKED_AT) if isinstance(held, list) else ():
        for name in _ids(item):
            if is_random(name):
                found[fingerprint(name)] = None
        if len(found) >= MAX_IDS:
            break
    return list(found)[:MAX_IDS]


def answered_ids(answer: Mapping[str, Any]) -> list[int]:
    """Return fingerprints of the random ids in an answer."""
    items: list[Any] = [answer]
    choices, output = answer.get("choices"), answer.get("output")
    if isinstance(choices, list):
        items += [choice.get("message") for choice in choices if isinstance(choice, dict)]
    if isinstance(output, list):
        items += output
    names = dict.fromkeys(name for item in items for name in _ids(item))
    return [fingerprint(name) for name in names if is_random(name)][:MAX_IDS]


def _ids(item: Any) -> Iterator[str]:
    """Yield the ids of tool calls in one message, or in one item of the Responses API."""
    if not isinstance(item, dict):
        return
    found = [item.get("tool_call_id"), item.get("call_id")]
    for name in ("tool_calls", "content"):
        parts = item.get(name)
        for part in parts if isinstance(parts, list) else ():
            if not isinstance(part, dict):
                continue
            if name == "tool_calls" or part.get("type") == "tool_use":
                found.append(part.get("id"))
            elif part.get("type") == "tool_result":
                found.append(part.get("tool_use_id"))
    yield from (name for name in found if isinstance(name, str))
