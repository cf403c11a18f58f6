"""tau-bench trajectories: tool-using customer-service dialogues with their full messages."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from random import Random
from typing import Any, Final

from weft_bench.workloads.schema import TraceCall, TraceProgram

# The trajectories have no times. Tools take as long as Sutradhara's web search (1.09 s mean,
# section 5), customers longer. Both are drawn from exponential distributions.
TOOL_GAP_S: Final = 1.09
CUSTOMER_GAP_S: Final = 4.0
_KEPT: Final = ("role", "content", "tool_calls", "tool_call_id", "name")


def read(records: Iterable[Mapping[str, Any]], rng: Random) -> Iterator[TraceProgram]:
    """Yield one program per trajectory, with one call per assistant message."""
    for number, record in enumerate(records):
        messages = [_clean(message) for message in record["messages"]]
        calls = []
        for index, message in enumerate(messages):
            if message["role"] != "assistant" or index == 0:
                continue
            after = messages[index + 1]["role"] if index + 1 < len(messages) else ""
            gap = {"tool": TOOL_GAP_S, "user": CUSTOMER_GAP_S}.get(after, 0.0)
            answer = (message.get("content") or "") + "".join(
                json.dumps(call["function"]) for call in message.get("tool_calls") or ()
            )
            calls.append(
                TraceCall(
                    messages=tuple(messages[:index]),
                    output_bytes=max(1, len(answer.encode())),
                    gap_s=rng.expovariate(1 / gap) if gap else 0.0,
                    ends_turn=after != "tool",
                )
            )
        if calls:
            name = f"{record.get('task_id', number)}-{record.get('trial', 0)}"
            yield TraceProgram(f"tau-{name}", tuple(calls))


def _clean(message: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: message[key] for key in _KEPT if message.get(key) is not None}
    kept.setdefault("content", "")
    return kept
