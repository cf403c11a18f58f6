"""Recorded agents, one call per line."""

from __future__ import annotations

from support.traces import recognised
from weft_bench.workloads.traces import agent_calls


def call(second, prompt, answer="ok", session="s"):
    return {
        "timestamp": 1_000_000 * second,
        "input": prompt,
        "output": answer,
        "session_id": session,
    }


def test_calls_of_a_session_are_one_program_in_order_of_time():
    records = [call(30, "b", session="later"), call(12, "a2"), call(10, "a1", answer="\u00fc!")]
    first, second = agent_calls.read(records)
    assert [c.messages[0]["content"] for c in first.calls] == ["a1", "a2"]
    assert first.calls[0].output_bytes == 3
    assert (first.arrival_s, second.arrival_s) == (0.0, 20.0)
    assert [c.gap_s for c in first.calls] == [agent_calls.GAP_SHARE * 2, 0.0]


def test_growing_prompt_is_split_at_the_end_of_the_previous_one():
    records = [
        call(1, "task"),
        call(2, "task and result"),
        call(3, "task and result"),
        call(4, "x"),
    ]
    (program,) = agent_calls.read(records)
    said = [[m["content"] for m in c.messages] for c in program.calls]
    assert said == [["task"], ["task", " and result"], ["task", " and result"], ["x"]]


def test_prompt_with_speakers_becomes_messages():
    text = "system: Plan.\n\nuser: Do it: now\n\nassistant: Done.\n\nMore."
    (program,) = agent_calls.read([call(1, text)])
    assert [(m["role"], m["content"]) for m in program.calls[0].messages] == [
        ("system", "Plan."),
        ("user", "Do it: now"),
        ("assistant", "Done.\n\nMore."),
    ]


def test_an_empty_prompt_is_an_empty_message():
    (program,) = agent_calls.read([call(1, ""), call(2, "")])
    assert [c.messages for c in program.calls] == [({"role": "user", "content": ""},)] * 2


def test_records_are_recognised():
    assert recognised(call(1, "x")) == ""
    assert recognised({"session_id": "x"}) is None
