"""Converts programs to aiperf's `mooncake_trace`, and aiperf's records to times of programs. Pure.

aiperf's `multi_turn` format has no answers: aiperf inserts those of the model. A `mooncake_trace`
has the whole conversation of each call, so that all prompts are the recorded ones, as in the other
benches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from weft_bench.agents.contents import messages_of
from weft_bench.stats import distribution, percentile
from weft_bench.workloads.cutting import ReadyProgram

_MS: Final = 1000.0
_NS: Final = 1e9
_PROFILING: Final = "profiling"


def rows(program: ReadyProgram, arrival_s: float, dilate: float = 1.0) -> Iterator[dict[str, Any]]:
    """Yield the calls of a program as rows of a `mooncake_trace`.

    The first row has the arrival, and each other row the delay after the previous answer, in
    milliseconds. dilate: factor on both. Raises ValueError if calls of the program run in parallel,
    because aiperf sends the calls of a session one after another.
    """
    for number, ready in enumerate(program.calls):
        call = ready.call
        if call.needs(number) != ((number - 1,) if number else ()):
            raise ValueError(f"calls of {program.id} run in parallel; aiperf sends one at a time")
        row: dict[str, Any] = {"session_id": program.id}
        if number:
            row["delay"] = _MS * dilate * program.calls[number - 1].call.gap_s
        else:
            row["timestamp"] = _MS * dilate * arrival_s
        row["output_length"] = ready.max_tokens
        row["messages"] = list(messages_of(call))
        if call.tools:
            # Otherwise vLLM requires a parser of tool calls.
            row |= {"tools": list(call.tools), "extra": {"tool_choice": "none"}}
        yield row


def program_times(records: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Return statistics of program completion times, in seconds, from aiperf's records.

    records: the lines of `profile_export.jsonl`. A program takes from its first request to the end
    of its last answer, with the delays between them and with its sub-agents. Programs with an error
    only count as errors. interactivity: tokens of an answer a second, from sending to the last
    token, the median of the requests; slow_tail: 1 over the P90 of the inverse, which aiperf 0.13
    does not compute. Without records that have metrics, both are left out.
    """
    begun: dict[str, int] = {}
    ended: dict[str, int] = {}
    failed: set[str] = set()
    calls = 0
    pace: list[float] = []
    for record in records:
        about = record["metadata"]
        if about["benchmark_phase"] != _PROFILING:
            continue
        # A session that is played twice has one correlation id for each play. Sub-agents have that
        # of their session beside their own.
        name = about.get("root_correlation_id") or about["x_correlation_id"]
        calls += 1
        begun[name] = min(begun.get(name, about["request_start_ns"]), about["request_start_ns"])
        ended[name] = max(ended.get(name, 0), about["request_end_ns"])
        if record.get("error"):
            failed.add(name)
            continue
        metrics = record.get("metrics") or {}
        if "request_latency" in metrics and metrics.get("output_sequence_length"):
            seconds = metrics["request_latency"]["value"] / _MS
            pace.append(seconds / metrics["output_sequence_length"]["value"])
    good = [(ended[name] - begun[name]) / _NS for name in begun if name not in failed]
    return {
        "programs": len(good),
        "errors": len(failed),
        "calls": calls,
        **distribution("completion", good),
        **(
            {
                "interactivity": 1 / percentile(pace, 0.5),
                "slow_tail": 1 / percentile(pace, 0.9),
            }
            if pace
            else {}
        ),
    }
