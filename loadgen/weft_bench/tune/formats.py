"""Records in formats of others: Mooncake's trace, and aiperf's `weka_trace`. Pure.

Both describe a prompt by the numbers of its blocks. Equal numbers are equal blocks behind an equal
beginning.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from weft_bench.tune.recorded import Line, Recorded
from weft_bench.workloads.cutting import ReadyCall
from weft_bench.workloads.schema import Part
from weft_bench.workloads.traces.requests import BLOCK_TOKENS

_WEKA_BLOCK_TOKENS: Final = 64


class _Blocks:
    """Numbers blocks of `size` tokens. The last block of a prompt may have fewer."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._numbers: dict[Any, int] = {}

    def of(self, parts: Iterable[Part]) -> list[int]:
        """Return the numbers of a prompt's blocks."""
        found: list[int] = []
        # Parts of the block, each with where it begins in the part, and how long it is.
        block: list[tuple[str, int, int]] = []
        room = self._size
        for part in parts:
            at = 0
            while at < part.tokens:
                length = min(room, part.tokens - at)
                block.append((part.name, at, length))
                at += length
                room -= length
                if not room:
                    found.append(self._number(found, block))
                    block, room = [], self._size
        return [*found, self._number(found, block)] if block else found

    def _number(self, before: Sequence[int], block: Sequence[Any]) -> int:
        key = (before[-1] if before else 0, *block)
        return self._numbers.setdefault(key, len(self._numbers) + 1)


def mooncake(programs: Iterable[Recorded]) -> Iterator[dict[str, Any]]:
    """Yield the rows of a Mooncake trace, one a call, by arrival: times in milliseconds from the
    first call, and blocks of 512 tokens.
    """
    calls = [pair for one in programs for pair in zip(one.lines, one.ready.calls, strict=True)]
    calls.sort(key=lambda pair: pair[0].arrived_at)
    blocks = _Blocks(BLOCK_TOKENS)
    for line, ready in calls:
        yield {
            "timestamp": round(1000 * (line.arrived_at - calls[0][0].arrived_at)),
            "input_length": ready.prompt_tokens,
            "output_length": ready.max_tokens,
            "hash_ids": blocks.of(ready.call.parts),
        }


def weka(program: Recorded) -> dict[str, Any]:
    """Return a program as a `weka_trace`, with blocks of 64 tokens. Threads beside the first one
    are sub-agents. Times are in seconds from the program's first call.
    """
    blocks = _Blocks(_WEKA_BLOCK_TOKENS)
    threads: dict[str, list[dict[str, Any]]] = {}
    for line, ready in zip(program.lines, program.ready.calls, strict=True):
        asked = _asked(line, ready, line.arrived_at - program.arrival_s, blocks)
        threads.setdefault(line.thread, []).append(asked)
    main, *others = threads.values()
    agents = [_agent(number, requests) for number, requests in enumerate(others, 1)]
    return {
        "id": program.ready.id,
        "models": sorted({line.model for line in program.lines}),
        "block_size": _WEKA_BLOCK_TOKENS,
        "hash_id_scope": "local",
        "requests": sorted([*main, *agents], key=lambda one: float(one["t"])),
    }


def _asked(line: Line, ready: ReadyCall, at_s: float, blocks: _Blocks) -> dict[str, Any]:
    return {
        "t": at_s,
        "type": "n",
        "model": line.model,
        "in": ready.prompt_tokens,
        "out": ready.max_tokens,
        "hash_ids": blocks.of(ready.call.parts),
        "api_time": line.total_s,
    }


def _agent(number: int, requests: Sequence[dict[str, Any]]) -> dict[str, Any]:
    end_s = max(one["t"] + one["api_time"] for one in requests)
    return {
        "t": requests[0]["t"],
        "type": "subagent",
        "agent_id": f"agent_{number:03}",
        "subagent_type": "thread",
        "duration_ms": round(1000 * (end_s - requests[0]["t"])),
        "total_tokens": sum(one["in"] + one["out"] for one in requests),
        "tool_use_count": len(requests) - 1,
        "status": "completed",
        "models": sorted({one["model"] for one in requests}),
        "requests": list(requests),
    }
