"""Coding-agent sessions: token counts, block hashes and times, without text.

The tokens of a block are derived from its hash, so that prompts share the same prefixes as in the
session. Hashes are local to a session. Sharing between sessions is modelled: sessions with tools of
equal length have the same tools at the front of every prompt. Real sessions have 10,000 to 300,000
tokens. `shrink` divides all lengths, so that a session keeps its shape and fits a small model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from hashlib import shake_128
from itertools import chain
from struct import unpack
from typing import Any, Final

from weft_bench.workloads.schema import TraceCall, TraceProgram

DEFAULT_SHRINK: Final = 16
# Generated ids lie in [FIRST_ID, FIRST_ID + IDS), where all vocabularies have ordinary tokens.
FIRST_ID: Final = 300
IDS: Final = 1000
_REQUESTS_TOOLS: Final = "tool_use"


def read(
    records: Iterable[Mapping[str, Any]], shrink: int = DEFAULT_SHRINK, context: int = 0
) -> Iterator[TraceProgram]:
    """Yield one program per session.

    `think_time` before a call is the gap after the previous call. It may include a user's approval,
    so it is an upper bound on tool time. context: stop after the first prompt of more tokens, since
    the session is cut there; 0 to read all.
    """
    for record in records:
        requests = [r for r in record["requests"] if "in" in r and r.get("hash_ids")]
        prompts = _Prompts(record, shrink)
        calls = []
        for index, request in enumerate(requests):
            following = requests[index + 1] if index + 1 < len(requests) else {}
            ids, tags = prompts.next(request)
            calls.append(
                TraceCall(
                    prompt_ids=ids,
                    tags=tags,
                    output_tokens=max(1, round(request["out"] / shrink)),
                    gap_s=float(following.get("think_time", 0.0)),
                    ends_turn=request.get("stop") != _REQUESTS_TOOLS,
                )
            )
            if context and len(ids) > context:
                break
        if calls:
            yield TraceProgram(f"coding-{record['id']}", tuple(calls))


class _Prompts:
    """Generates a session's prompts in order: token ids and their tags."""

    def __init__(self, record: Mapping[str, Any], shrink: int) -> None:
        size = int(record["block_size"])
        self._id = record["id"]
        self._shrink = shrink
        self._width = max(1, size // shrink)
        self._tools = int(record.get("tool_tokens", 0))
        self._tool_blocks = self._tools // size
        # Number of blocks of tools and system prompt at the front of the session's first prompt.
        self._fixed = (self._tools + int(record.get("system_tokens", 0))) // size
        self._blocks: dict[int, tuple[int, ...]] = {}
        self._before: list[int] = []
        self._tags: list[str] = []
        self._answer = 0
        self._stop = ""

    def next(
        self, request: Mapping[str, Any]
    ) -> tuple[tuple[int, ...], tuple[tuple[int, str], ...]]:
        hashes = request["hash_ids"]
        for place, block in enumerate(hashes):
            if block not in self._blocks:
                ours = self._before or place >= self._tool_blocks
                name = f"{self._id}/{block}" if ours else f"tools/{self._tools}/{place}"
                self._blocks[block] = ids_of(name, self._width)
        self._tag(hashes)
        self._answer = round(request["out"] / self._shrink)
        self._stop = str(request.get("stop", ""))
        ids = tuple(chain.from_iterable(map(self._blocks.__getitem__, hashes)))
        return ids, tuple(_spans(self._tags, self._width))

    def _tag(self, hashes: list[int]) -> None:
        """Assign one tag to each block.

        Blocks shared with the previous prompt keep their tags. The last answer follows, then the
        client's input: tool output if the answer requested tools, else the user's query.
        """
        kept = 0
        while kept < min(len(hashes), len(self._before)) and hashes[kept] == self._before[kept]:
            kept += 1
        if not self._before:
            kept = min(self._fixed, len(hashes))
            self._tags = ["SYSTEM_PROMPT"] * kept
        answer = -(-self._answer // self._width)
        said = "TOOL_OUTPUT" if self._stop == _REQUESTS_TOOLS else "USER_QUERY"
        new = ["RESPONSE"] * answer + [said] * len(hashes)
        self._tags = (self._tags[:kept] + new)[: len(hashes)]
        self._before = hashes


def _spans(tags: list[str], width: int) -> Iterator[tuple[int, str]]:
    """Yield runs of equal tags as (end, tag), for blocks of `width` tokens."""
    for place, tag in enumerate(tags):
        if place + 1 == len(tags) or tags[place + 1] != tag:
            yield (place + 1) * width, tag


@lru_cache(maxsize=4096)
def ids_of(name: str, count: int) -> tuple[int, ...]:
    """Return the token ids of a name's text. A shorter text is a prefix of a longer one."""
    digest = shake_128(name.encode()).digest(2 * count)
    return tuple(FIRST_ID + number % IDS for number in unpack(f">{count}H", digest))
