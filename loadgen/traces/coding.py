"""Coding-agent sessions: token counts, block hashes and times, without text.

The text is made: a block's tokens follow from its hash, so that prompts share exactly the prefixes
that they shared in the session. Real sessions hold ten to three hundred thousand tokens; `shrink`
divides all lengths, so that a session fits a small model and keeps its shape.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from hashlib import shake_128
from typing import Any, Final

from loadgen.schema import TraceCall, TraceProgram

DEFAULT_SHRINK: Final = 16
# Ids of made-up prompts lie in [FIRST_ID, FIRST_ID + IDS): ordinary tokens of any vocabulary.
FIRST_ID: Final = 300
IDS: Final = 1000


def matches(record: Mapping[str, Any]) -> bool:
    """Whether a record is a coding session."""
    requests = record.get("requests")
    return isinstance(requests, list) and "block_size" in record


def read(
    records: Iterable[Mapping[str, Any]], shrink: int = DEFAULT_SHRINK, context: int = 0
) -> Iterator[TraceProgram]:
    """One program a session. `think_time` before a call is the gap after the one before it; it may
    include a person's approval, so it is an upper bound on tool time. context: after the first
    prompt of more tokens nothing is read, since the session is cut there; 0: read all."""
    for record in records:
        requests = [r for r in record["requests"] if "in" in r and r.get("hash_ids")]
        width = max(1, record["block_size"] // shrink)
        blocks: dict[int, list[int]] = {}
        calls = []
        for index, request in enumerate(requests):
            following = requests[index + 1] if index + 1 < len(requests) else {}
            for block in request["hash_ids"]:
                if block not in blocks:
                    blocks[block] = _block(record["id"], block, width)
            calls.append(
                TraceCall(
                    prompt_ids=tuple(t for block in request["hash_ids"] for t in blocks[block]),
                    output_tokens=max(1, round(request["out"] / shrink)),
                    gap_s=float(following.get("think_time", 0.0)),
                )
            )
            if context and width * len(request["hash_ids"]) > context:
                break
        if calls:
            yield TraceProgram(f"coding-{record['id']}", tuple(calls))


def _block(session: str, block: int, width: int) -> list[int]:
    digest = shake_128(f"{session}/{block}".encode()).digest(2 * width)
    return [FIRST_ID + int.from_bytes(digest[2 * i : 2 * i + 2], "big") % IDS for i in range(width)]
