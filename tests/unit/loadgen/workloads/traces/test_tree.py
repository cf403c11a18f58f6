"""Tree-of-thoughts searches: the dependencies of calls and the lengths of answers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from weft_bench.workloads.traces import tree
from weft_bench.workloads.traces.files import read_trace

DATA = Path(__file__).resolve().parents[6] / "shared" / "data"
TREE = {
    "idx": 900,
    "steps": [
        {"x": "1 2 3 4", "ys": [""], "new_ys": ["a\n", "b\n", "a\n"]},
        {"x": "1 2 3 4", "ys": ["b\n", "a\n"], "new_ys": ["b\nc\n"]},
    ],
    "usage_so_far": {"completion_tokens": 60, "prompt_tokens": 600},
}


def test_a_search_fans_out_and_joins():
    (program,) = tree.read([TREE])
    assert program.id == "tree-900"
    # Propose, judge both new states (one was found twice), propose from both, judge.
    assert [call.after for call in program.calls] == [(), (0,), (0,), (1, 2), (1, 2), (3, 4)]
    assert [call.output_tokens for call in program.calls] == [10] * 6
    prompts = [call.messages[0]["content"] for call in program.calls]
    assert prompts[2].endswith("Numbers: 1 2 3 4\nb\n")
    assert prompts[0].partition("Numbers: 1")[0] == prompts[3].partition("Numbers: 1")[0]
    assert prompts[1].partition("Numbers: 1")[0] != prompts[0].partition("Numbers: 1")[0]


def test_usage_of_a_search_is_the_growth_of_the_total(tmp_path):
    path = tmp_path / "t.jsonl"
    totals = [("900", 60), ("901", 180), ("902", 30)]
    path.write_text(
        "".join(
            json.dumps({**TREE, "idx": i, "usage_so_far": {"completion_tokens": total}}) + "\n"
            for i, total in totals
        )
    )
    for seed in range(3):
        found = {p.id: p.calls[0].output_tokens for p in read_trace(path, seed)[1]}
        assert found == {"tree-900": 10, "tree-901": 20, "tree-902": 5}


@pytest.mark.skipif(not DATA.is_dir(), reason="the real traces are not beside this checkout")
def test_the_real_searches_have_their_published_shape():
    programs = list(read_trace(DATA / "tree_of_thoughts", seed=0)[1])
    calls = [call for program in programs for call in program.calls]
    assert len(programs) == 100
    assert len(calls) / 100 == pytest.approx(100, abs=1)
    assert max(len(program.calls) for program in programs) == 153
    assert sum(call.output_tokens for call in calls) / len(calls) == pytest.approx(55, abs=2)
