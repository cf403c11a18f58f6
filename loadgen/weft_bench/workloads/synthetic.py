"""A built-in workload of tool-using dialogues, for machines without a trace.

It follows the published statistics of BFCL in Agentix 6.1: 10.75 calls per program on average, 70
at most, short answers, long system prompts with tool signatures. The number of calls is geometric
with a long tail. All programs share the system prompt and the tools. Each tool's result extends the
program's context.
"""

from __future__ import annotations

import json
from random import Random
from typing import Any, Final

from weft_bench.workloads.schema import TraceCall, TraceProgram
from weft_bench.workloads.streams import stream

_MAX_CALLS: Final = 70
_TOOL_GAP_S: Final = 1.09
WORDS: Final = (
    *("flight", "seat", "ticket", "price", "change", "cancel", "refund", "customer", "account"),
    *("order", "city", "date", "time", "hotel", "booking", "number", "confirm", "payment", "card"),
    *("policy", "agent", "result", "value", "status", "list", "find", "update", "get"),
)
_SYSTEM: Final = (
    "You help customers of a travel agency. Use the tools. Make one call at a time. "
    "Ask before you change a booking, and explain what you did in one or two sentences. "
) * 4


def generate(seed: int, count: int) -> list[TraceProgram]:
    """Return `count` programs. The same seed gives the same bytes."""
    return [program(seed, number) for number in range(count)]


def program(seed: int, number: int) -> TraceProgram:
    """Return one dialogue."""
    lengths = stream(seed, f"calls/{number}")
    text = stream(seed, f"text/{number}")
    gaps = stream(seed, f"gaps/{number}")
    # Two geometric stages give many short programs and a few long ones, with the published mean.
    stage = 4.0 if lengths.random() < 0.6 else 20.9
    count = min(_MAX_CALLS, 1 + int(lengths.expovariate(1 / (stage - 0.5))))
    history: list[dict[str, Any]] = [
        {"role": "system", "content": _SYSTEM},
        {"role": "user", "content": _sentence(text, 12, 40)},
    ]
    calls = []
    for index in range(count):
        answer = _sentence(text, 5, 45)
        calls.append(
            TraceCall(
                messages=tuple(history),
                output_bytes=len(answer),
                gap_s=gaps.expovariate(1 / _TOOL_GAP_S),
            )
        )
        identity = f"call_{number}_{index}"
        function = {"name": "search", "arguments": json.dumps({"query": _sentence(text, 2, 5)})}
        history += [
            {
                "role": "assistant",
                "content": answer,
                "tool_calls": [{"id": identity, "type": "function", "function": function}],
            },
            {"role": "tool", "tool_call_id": identity, "content": _sentence(text, 8, 60)},
        ]
    return TraceProgram(f"synthetic-{number}", tuple(calls))


def _sentence(rng: Random, low: int, high: int) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(low, high)))


def words(rng: Random, characters: int) -> str:
    """Return words of this workload with at least this many characters."""
    found: list[str] = []
    while characters > 0:
        found.append(rng.choice(WORDS))
        characters -= len(found[-1]) + 1
    return " ".join(found)
