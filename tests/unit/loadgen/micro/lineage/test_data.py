"""Recorded programs with their texts."""

from __future__ import annotations

import json
import lzma

import pytest
from weft_bench.micro.lineage.data import read
from weft_bench.workloads.schema import TraceError

DIALOGUE = {
    "messages": [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "u"},
        {"role": "assistant", "content": "a"},
        {"role": "user", "content": "v"},
        {"role": "assistant", "content": "b"},
    ]
}


def write(folder, name, *records):
    file = folder / name
    file.parent.mkdir(parents=True)
    with lzma.open(file, "wt") as opened:
        opened.writelines(json.dumps(record) + "\n" for record in records)


def test_dialogue_is_one_call_per_answer(tmp_path):
    write(tmp_path, "tau_airline/trajectories.jsonl.xz", DIALOGUE, DIALOGUE)
    first, second = read(tmp_path, "tau_airline", seed=1)
    assert [len(json.loads(call.body)["messages"]) for call in first] == [2, 4]
    assert json.loads(first[1].answer)["choices"][0]["message"]["content"] == "b"
    assert first[0].at_s + first[0].took_s <= first[1].at_s
    assert first[0].at_s != second[0].at_s
    assert read(tmp_path, "tau_airline", seed=1) == [first, second]


def test_runs_are_grouped_by_session_and_start_together(tmp_path):
    records = [
        {"timestamp": at * 10**6, "input": f"{s}{at}", "output": "o", "session_id": s}
        for s, at in (("a", 7), ("b", 9000), ("a", 5), ("b", 9003))
    ]
    write(tmp_path, "agent_calls/miniswe.jsonl.xz", *records)
    a, b = read(tmp_path, "miniswe", seed=1)
    assert [json.loads(call.body)["prompt"] for call in a] == ["a5", "a7"]
    assert a[1].at_s - a[0].at_s == pytest.approx(2.0)
    assert abs(b[0].at_s - a[0].at_s) < 60


def test_error_names_an_unreadable_file(tmp_path):
    with pytest.raises(TraceError, match=r"trajectories\.jsonl"):
        read(tmp_path, "tau_airline", seed=1)
    write(tmp_path, "tau_airline/trajectories.jsonl.xz", {"no": "messages"})
    with pytest.raises(TraceError, match=r"trajectories\.jsonl"):
        read(tmp_path, "tau_airline", seed=1)
