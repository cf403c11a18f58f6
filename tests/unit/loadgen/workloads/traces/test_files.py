"""Reads small traces made here, and the real ones if available."""

from __future__ import annotations

import json
import lzma
from itertools import islice, pairwise
from pathlib import Path

import pytest
from weft_bench.workloads.schema import TraceError
from weft_bench.workloads.statistics import statistics
from weft_bench.workloads.traces.files import read_trace
from weft_bench.workloads.traces.published import PUBLISHED

DATA = Path(__file__).resolve().parents[6] / "shared" / "data"
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


def test_dialogue_becomes_one_call_per_answer(tmp_path):
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
    assert sum(part.tokens for part in first.parts) == 128
    assert second.parts[: len(first.parts)] == first.parts
    assert first.output_tokens == 160
    assert first.gap_s == 7.0


def test_seed_decides_the_order_of_programs(tmp_path):
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
        ("[1]\n", "line 1: the record is not a JSON object"),
    ],
)
def test_unknown_format_is_refused_with_the_known_ones(tmp_path, content, message):
    path = tmp_path / "x.jsonl"
    path.write_text(content)
    with pytest.raises(TraceError, match=message):
        read_trace(path, seed=0)


def test_errors_name_missing_ambiguous_and_corrupt_files(tmp_path):
    with pytest.raises(TraceError, match="nowhere"):
        read_trace(tmp_path / "nowhere", seed=0)
    with pytest.raises(TraceError, match="0 trace files"):
        read_trace(tmp_path, seed=0)
    (tmp_path / "b.jsonl.xz").write_bytes(b"not xz")
    with pytest.raises(TraceError, match="cannot be read"):
        read_trace(tmp_path / "b.jsonl.xz", seed=0)


REQUEST = {"timestamp": 0, "input_length": 512, "output_length": 4, "hash_ids": [1]}


def requests(folder, count=8):
    path = folder / "conversation.jsonl"
    records = [{**REQUEST, "timestamp": 1000 * n * n, "hash_ids": [n]} for n in range(count)]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def test_recorded_arrivals_keep_their_order_from_a_start_that_the_seed_selects(tmp_path):
    path = requests(tmp_path)
    begins = set()
    for seed in range(6):
        name, programs = read(path, seed)
        assert name == "mooncake_conversation"
        numbers = [int(p.id.rpartition("-")[2]) for p in programs]
        begin = numbers[0]
        begins.add(begin)
        assert numbers == [(begin + n) % 8 for n in range(8)]
        times = [p.arrival_s for p in programs]
        assert times[0] == 0
        assert times == sorted(times)
        # The gaps are as recorded, except for the one from the last program to the first.
        steps = [after - before for before, after in pairwise(times)]
        recorded = [2 * n + 1 for n in numbers[:-1]]
        whole = [(s, r) for s, r, n in zip(steps, recorded, numbers, strict=False) if n != 7]
        assert all(step == pytest.approx(told) for step, told in whole)
    assert len(begins) > 1


def test_a_table_is_read_by_its_header(tmp_path):
    path = tmp_path / "code.csv"
    path.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.97,32,16\n"
        "2023-11-16 18:17:04.97,64,16\n"
    )
    name, programs = read(path)
    assert name == "azure_code"
    assert sorted(p.calls[0].parts[0].tokens for p in programs) == [32, 64]
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.97,32\n")
    with pytest.raises(TraceError, match="line 2: 2 values in 3 columns"):
        read_trace(path, seed=0)
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n")
    with pytest.raises(TraceError, match="empty"):
        read_trace(path, seed=0)


def test_invalid_record_is_reported_with_its_line(tmp_path):
    path = requests(tmp_path)
    with path.open("a") as opened:
        opened.write(json.dumps({**REQUEST, "input_length": 9999}) + "\n")
    with pytest.raises(TraceError, match="line 9: 1 blocks of 512 do not make 9999 tokens"):
        read(path)
    path.write_text(json.dumps(TAU) + '\n{"messages": [{"content": "x"}]}\n')
    with pytest.raises(TraceError, match="line 2: KeyError 'role'"):
        read(path)


def test_invalid_record_of_a_trace_read_at_once_is_reported(tmp_path):
    record = {"idx": 0, "steps": [], "usage_so_far": {"completion_tokens": 1}}
    path = tmp_path / "game24.jsonl"
    path.write_text(f'{json.dumps(record)}\n{{"idx": 1, "steps": [null]}}\n')
    with pytest.raises(TraceError, match="line 2: KeyError 'usage_so_far'"):
        read(path)


def test_parser_errors_are_reported_with_their_line(tmp_path):
    path = tmp_path / "trace.jsonl"
    path.write_text(json.dumps(TAU) + "\n" + "[" * 100_000 + "\n")
    with pytest.raises(TraceError, match="line 2: "):
        read(path)
    path = tmp_path / "code.csv"
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "1" * 200_000 + ",2,3\n")
    with pytest.raises(TraceError, match="line 2: field larger"):
        read(path)
    path.write_text("T" * 200_000 + "\n1\n")
    with pytest.raises(TraceError, match="line 1: field larger"):
        read(path)


@pytest.mark.parametrize("think", [-1.0, float("nan"), float("inf")])
def test_invalid_times_are_reported_with_their_line(tmp_path, think):
    requests_ = [{"in": 64, "out": 8, "hash_ids": [n], "think_time": think} for n in (0, 1)]
    path = write(tmp_path, {"id": "s", "block_size": 64, "requests": requests_})
    with pytest.raises(TraceError, match="line 1: gap_s must be finite and at least 0"):
        read(path)


def test_requests_are_sorted_by_their_times(tmp_path):
    path = tmp_path / "code.csv"
    rows = "".join(f"2023-11-16 18:17:0{second},32,16\n" for second in (7, 3, 5))
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + rows)
    for seed in range(5):
        _, programs = read(path, seed)
        times = [p.arrival_s for p in programs]
        assert times == sorted(times)
        assert times[0] == 0.0


def test_companion_file_is_read_from_the_same_folder(tmp_path):
    path = tmp_path / "spider_dev.jsonl"
    path.write_text(json.dumps({"db_id": "d", "question": "q?", "query": "Q"}) + "\n")
    with pytest.raises(TraceError, match=r"needs spider_schemas.jsonl beside it"):
        read(path)
    schema = {
        "db_id": "d",
        "table_names_original": ["t"],
        "column_names_original": [[-1, "*"], [0, "c"]],
        "column_types": ["text", "text"],
        "foreign_keys": [],
    }
    write(tmp_path, schema, "spider_schemas.jsonl.xz")
    name, (program,) = read(path)
    assert name == "spider"
    assert "t(c text)" in program.calls[0].messages[0]["content"]
    assert read(tmp_path)[0] == "spider", "the file beside it is not a trace"


REAL = pytest.mark.skipif(not DATA.is_dir(), reason="the real traces are not beside this checkout")
# The collection counts text without roles and separators, and a cache of whole blocks holds
# slightly less than one of tokens.
TOLERANCES = {"prompt mean": 0.02, "output mean": 0.02, "cached": 0.025, "kept": 0.015}
WHOLE = {
    "tau_airline": "tau_airline",
    "tree_of_thoughts": "tree_of_thoughts",
    "miniswe": "agent_calls/miniswe.jsonl.xz",
    "magagent": "agent_calls/magagent.jsonl.xz",
    "mooncake_conversation": "mooncake/conversation.jsonl.xz",
    "mooncake_synthetic": "mooncake/synthetic.jsonl.xz",
    "azure_conversation": "azure_2023/conversation.csv.xz",
    "azure_code": "azure_2023/code.csv.xz",
    "bfcl_multi_turn": "bfcl_multi_turn",
    "gsm8k": "prompts/gsm8k_test.jsonl.xz",
    "mt_bench": "prompts/mt_bench.jsonl.xz",
    "tatqa": "prompts/tatqa_dev.jsonl.xz",
    "spider": "prompts/spider_dev.jsonl.xz",
}


@pytest.mark.slow
@REAL
@pytest.mark.parametrize("name", WHOLE)
def test_real_trace_has_its_published_statistics(name):
    title, programs = read_trace(DATA / WHOLE[name], seed=0)
    assert title == name
    found = statistics(programs)
    _, published = PUBLISHED[name]
    for statistic, value in published.items():
        tolerance = TOLERANCES.get(statistic, 0.01)
        assert found[statistic] == pytest.approx(value, rel=tolerance), statistic


@pytest.mark.slow
@REAL
def test_sample_of_coding_sessions_has_the_published_sharing():
    name, programs = read_trace(DATA / "coding_sessions", seed=0)
    found = statistics(islice(programs, 12))
    assert found["kept"] == pytest.approx(PUBLISHED[name][1]["kept"], abs=0.02)
    assert 30 < found["calls mean"] < 140


@pytest.mark.slow
@REAL
def test_every_file_of_the_collection_has_a_reader():
    files = {str(p.relative_to(DATA)) for p in DATA.rglob("*.xz")}
    companions = {"bfcl_multi_turn/functions.jsonl.xz", "prompts/spider_schemas.jsonl.xz"}
    for file in sorted(files - companions):
        name, programs = read_trace(DATA / file, seed=1)
        assert next(programs).calls, name
        assert name in PUBLISHED
