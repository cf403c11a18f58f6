"""`weft bench workload`."""

from __future__ import annotations

import json

import pytest
from weft_bench.cli.studies import WorkloadOptions
from weft_bench.workloads.command import run
from weft_bench.workloads.registry import WORKLOADS
from weft_bench.workloads.traces.files import read_trace


def test_command_writes_a_file_that_replay_reads(tmp_path, capsys):
    path = tmp_path / "w.jsonl.xz"
    assert run(WorkloadOptions("bfcl", programs=7, seed=3, rate=2.0, out=str(path))) == 0
    assert "7 programs of bfcl" in capsys.readouterr().out
    name, found = read_trace(path, seed=0)
    programs = list(found)
    assert name == "bfcl"
    assert [p.calls for p in programs] == [p.calls for p in WORKLOADS["bfcl"].generate(3, 7)]
    assert all(p.arrival_s > 0 for p in programs)


def test_the_same_options_write_the_same_bytes(tmp_path):
    paths = [tmp_path / name for name in ("a.jsonl", "b.jsonl")]
    for path in paths:
        run(WorkloadOptions("lats", programs=2, seed=3, out=str(path)))
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_statistics_of_a_name_and_its_file_are_equal(tmp_path, capsys):
    path = tmp_path / "w.jsonl"
    run(WorkloadOptions("sharegpt", programs=20, out=str(path)))
    figures = []
    for what in ("sharegpt", str(path)):
        out = tmp_path / "figures.json"
        options = WorkloadOptions(programs=20, describe=(what,), json_file=str(out))
        assert run(options) == 0
        figures.append(json.loads(out.read_text())["figures"])
    assert figures[0] == figures[1]
    named = {figure["name"]: figure for figure in figures[0]}
    assert named["sharegpt/calls mean/published"]["value"] == 6.66
    assert named["sharegpt/prompt mean"]["unit"] == "tokens"
    assert "6.66" in capsys.readouterr().out


def test_all_workloads_are_described_as_markdown_rows(capsys):
    assert run(WorkloadOptions(programs=3, describe=("all",), markdown=True)) == 0
    rows = capsys.readouterr().out.splitlines()
    assert [row.split("`")[1] for row in rows[2:]] == list(WORKLOADS)


def test_command_lists_all_workloads(capsys):
    assert run(WorkloadOptions()) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(WORKLOADS)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (WorkloadOptions("nothing", out="x"), "known are sharegpt"),
        (
            WorkloadOptions(describe=("nowhere.jsonl",)),
            "nowhere.jsonl is neither a file nor a workload",
        ),
        (WorkloadOptions("bfcl", out="x", arrivals="weekly"), "known are poisson"),
    ],
)
def test_invalid_options_are_refused(tmp_path, monkeypatch, capsys, options, message):
    monkeypatch.chdir(tmp_path)
    assert run(options) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
