"""Programs as aiperf's `mooncake_trace`, and program times from its records."""

from __future__ import annotations

from typing import Any

import pytest
from weft_bench.aiperf.exchange import program_times, rows
from weft_bench.workloads.cutting import ReadyCall, ReadyProgram
from weft_bench.workloads.schema import Part, TraceCall

TOOL = {"type": "function", "function": {"name": "f"}}


def program(*calls: TraceCall) -> ReadyProgram:
    ready = tuple(ReadyCall(call, 10, 7 + number) for number, call in enumerate(calls))
    return ReadyProgram("p", ready, cut=False, trimmed=False)


def said(text: str) -> tuple[dict[str, str], ...]:
    return ({"role": "user", "content": text},)


def test_the_first_row_has_the_arrival_and_the_others_the_gap_before_them():
    calls = (
        TraceCall(messages=said("a"), gap_s=1.5),
        TraceCall(messages=said("b"), gap_s=9.0),
        TraceCall(messages=said("c"), gap_s=4.0),
    )
    assert list(rows(program(*calls), arrival_s=2.0)) == [
        {"session_id": "p", "timestamp": 2000, "output_length": 7, "messages": [*said("a")]},
        {"session_id": "p", "delay": 1500, "output_length": 8, "messages": [*said("b")]},
        {"session_id": "p", "delay": 9000, "output_length": 9, "messages": [*said("c")]},
    ]


def test_dilation_multiplies_arrivals_and_gaps():
    calls = (TraceCall(messages=said("a"), gap_s=1.5), TraceCall(messages=said("b")))
    first, second = rows(program(*calls), arrival_s=2.0, dilate=4.0)
    assert (first["timestamp"], second["delay"]) == (8000, 6000)


def test_tools_are_sent_without_the_need_of_a_parser():
    (row,) = rows(program(TraceCall(messages=said("a"), tools=(TOOL,))), 0.0)
    assert row["tools"] == [TOOL]
    assert row["extra"] == {"tool_choice": "none"}


def test_parts_become_messages_that_the_next_call_repeats():
    head = (Part("s", 3, "system"), Part("q", 2, "user"))
    more = (*head, Part("a", 4, "assistant"), Part("t", 5, "tool"))
    first, second = rows(program(TraceCall(parts=head), TraceCall(parts=more)), 0.0)
    assert [m["role"] for m in second["messages"]] == ["system", "user", "assistant", "user"]
    assert [len(m["content"].split()) for m in second["messages"]] == [3, 2, 4, 5]
    assert second["messages"][:2] == first["messages"]


@pytest.mark.parametrize("after", [(), (0, 1)])
def test_programs_with_parallel_calls_are_refused(after):
    calls = [TraceCall(messages=said(text)) for text in "ab"]
    with pytest.raises(ValueError, match="calls of p run in parallel"):
        list(rows(program(*calls, TraceCall(messages=said("c"), after=after)), 0.0))


def record(session: str, start_s: float, end_s: float, **more: Any) -> dict[str, Any]:
    times = {"request_start_ns": int(start_s * 1e9), "request_end_ns": int(end_s * 1e9)}
    about = {"x_correlation_id": session, "benchmark_phase": "profiling", **times}
    return {"metadata": about | more.pop("metadata", {}), "metrics": {}, **more}


def test_sub_agents_belong_to_their_session_and_the_slow_tail_is_that_of_requests():
    def timed(session: str, start_s: float, end_s: float, tokens: int) -> dict[str, Any]:
        found = record(session, start_s, end_s, metadata={"root_correlation_id": "a"})
        latency = {"value": 1000 * (end_s - start_s), "unit": "ms"}
        found["metrics"] = {
            "request_latency": latency, "output_sequence_length": {"value": tokens}
        }  # fmt: skip
        return found

    found = program_times([timed("a", 0, 1, 10), timed("b", 2, 4, 10), timed("a", 5, 8, 10)])
    assert (found["programs"], found["calls"], found["completion_mean"]) == (1, 3, 8)
    assert found["interactivity"] == pytest.approx(5.0)
    assert found["slow_tail"] == pytest.approx(1 / 0.28)


def test_a_program_takes_from_its_first_request_to_its_last_answer():
    # aiperf writes records in the order in which they end.
    records = [
        record("a", 10, 11),
        record("b", 10.5, 12),
        record("a", 13, 14),
        record("b", 15, 16.5),
        record("warm", 1, 2, metadata={"benchmark_phase": "warmup"}),
    ]
    found = program_times(records)
    assert (found["programs"], found["calls"], found["errors"]) == (2, 4, 0)
    assert found["completion_mean"] == pytest.approx(5.0)
    assert found["completion_p50"] == pytest.approx(5.0)


def test_programs_with_an_error_only_count_as_errors():
    failed = record("a", 3, 60, error={"code": 500, "message": "no"})
    found = program_times([record("a", 0, 1), failed, record("b", 0, 2)])
    assert (found["programs"], found["calls"], found["errors"]) == (1, 3, 1)
    assert found["completion_mean"] == pytest.approx(2.0)
