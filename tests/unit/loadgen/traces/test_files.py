"""Reading traces: small ones made here, and the real ones where they are at hand."""

from __future__ import annotations

import json
import lzma
from itertools import islice, pairwise
from pathlib import Path

import pytest

from loadgen.schema import TraceError
from loadgen.traces import coding
from loadgen.traces.files import read_trace

DATA = Path(__file__).resolve().parents[5] / "shared" / "data"
TAU = {
    "task_id": 3,
    "trial": 1,
    "messages": [
        {"role": "system", "content": "S"},
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
            ],
        },
        {"role": "tool", "tool_call_id": "c", "name": "f", "content": "result"},
        {"role": "assistant", "content": "done"},
    ],
}
CODING = {
    "id": "s1",
    "block_size": 64,
    "requests": [
        {"in": 128, "out": 160, "hash_ids": [1, 2], "think_time": 0.0},
        {"in": 192, "out": 32, "hash_ids": [1, 2, 3], "think_time": 7.0},
        {"type": "subagent"},
    ],
}


def read(path, seed=0):
    name, programs = read_trace(path, seed)
    return name, list(programs)


def write(folder: Path, record, name="trace.jsonl") -> Path:
    path = folder / name
    text = json.dumps(record) + "\n"
    if name.endswith(".xz"):
        path.write_bytes(lzma.compress(text.encode()))
    else:
        path.write_text(text)
    return path


def test_a_dialogue_becomes_a_call_for_each_answer(tmp_path):
    name, (program,) = read(write(tmp_path, TAU))
    assert name == "tau_airline"
    assert program.id == "tau-3-1"
    first, second = program.calls
    assert [m["role"] for m in first.messages] == ["system", "user"]
    assert second.messages[2]["tool_calls"][0]["function"]["name"] == "f"
    assert second.messages[2]["content"] == ""
    assert second.output_bytes == len("done")
    assert first.gap_s > 0
    assert second.gap_s == 0.0
    assert read(tmp_path) == read(tmp_path / "trace.jsonl")


def test_a_session_keeps_shared_prefixes_lengths_and_gaps(tmp_path):
    name, (program,) = read(write(tmp_path, CODING, "trace.jsonl.xz"))
    assert name == "coding_sessions"
    first, second = program.calls
    assert len(first.prompt_ids) == 128 // coding.DEFAULT_SHRINK
    assert second.prompt_ids[: len(first.prompt_ids)] == first.prompt_ids
    assert first.output_tokens == 160 // coding.DEFAULT_SHRINK
    assert first.gap_s == 7.0
    (whole,) = coding.read([CODING], shrink=1)
    assert len(whole.calls[1].prompt_ids) == 192
    (cut,) = coding.read([CODING], shrink=1, context=100)
    assert len(cut.calls) == 1, "what lies far beyond the context is not made"


def test_the_seed_decides_which_programs_come_first(tmp_path):
    path = tmp_path / "many.jsonl"
    path.write_text("".join(json.dumps({**TAU, "task_id": n}) + "\n" for n in range(20)))
    orders = [[p.id for p in read(path, seed)[1]] for seed in (0, 0, 1)]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == sorted(orders[2])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"a": 1}\n', "tree_of_thoughts"),
        ('{"a": 1}\n', "tau_airline"),
        ("", "empty"),
        ("not json\n", "line 1"),
        ("[1]\n", "known"),
    ],
)
def test_what_is_no_trace_is_refused_with_what_is_known(tmp_path, content, message):
    path = tmp_path / "x.jsonl"
    path.write_text(content)
    with pytest.raises(TraceError, match=message):
        read_trace(path, seed=0)


def test_missing_ambiguous_and_broken_files_are_named(tmp_path):
    with pytest.raises(TraceError, match="nowhere"):
        read_trace(tmp_path / "nowhere", seed=0)
    with pytest.raises(TraceError, match="0 trace files"):
        read_trace(tmp_path, seed=0)
    (tmp_path / "b.jsonl.xz").write_bytes(b"not xz")
    with pytest.raises(TraceError, match="cannot be read"):
        read_trace(tmp_path / "b.jsonl.xz", seed=0)


@pytest.mark.skipif(not DATA.is_dir(), reason="the real traces are not beside this checkout")
@pytest.mark.parametrize(("folder", "least"), [("tau_airline", 10.0), ("coding_sessions", 5.0)])
def test_the_real_traces_are_read(folder, least):
    _, found = read_trace(DATA / folder, seed=0, context=8192)
    programs = list(islice(found, 20))
    assert len(programs) == 20
    assert sum(len(p.calls) for p in programs) / 20 > least
    for program in programs:
        for before, after in pairwise(program.calls):
            assert len(after.messages) > len(before.messages) or after.prompt_ids
