"""Workloads by name."""

from __future__ import annotations

import json

import pytest
from weft_bench.virtual.workload import load
from weft_bench.workloads.schema import TraceError


def test_built_in_workload_depends_only_on_the_seed():
    one = load("dialogues", 3, 5, 100_000)
    assert len(one) == 5
    assert one == load("dialogues", 3, 5, 100_000)
    assert one != load("dialogues", 4, 5, 100_000)


def test_trace_is_cut_to_the_context(tmp_path):
    record = {
        "id": "s", "block_size": 64,
        "requests": [
            {"in": 64 * n, "out": 32, "hash_ids": list(range(n)), "think_time": 1.0}
            for n in range(1, 200)
        ],
    }  # fmt: skip
    file = tmp_path / "trace.jsonl"
    file.write_text(json.dumps(record) + "\n")
    (program,) = load(str(file), 0, 10, 400)
    assert program.cut
    assert all(call.prompt_tokens + call.max_tokens <= 400 for call in program.calls)


def test_unplayable_workload_is_refused(tmp_path):
    with pytest.raises(TraceError, match="does not exist"):
        load(str(tmp_path / "none"), 0, 1, 1000)
    with pytest.raises(TraceError, match="no program"):
        load("dialogues", 0, 5, 8)


@pytest.mark.parametrize("name", ["sharegpt", "bfcl", "swe"])
def test_published_workloads_are_found_by_name(name):
    programs = load(name, 0, 4, 100_000)
    assert len(programs) == 4
    assert programs == load(name, 0, 4, 100_000)
