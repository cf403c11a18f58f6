"""`weft bench workload` for aiperf."""

from __future__ import annotations

import json
from itertools import groupby

import pytest
from typer.testing import CliRunner
from weft_bench.cli import bench

runner = CliRunner()


def write(path, *more):
    return runner.invoke(bench, ["workload", "--aiperf-out", str(path), *more])


def sessions(path):
    found = [json.loads(line) for line in path.read_text().splitlines()]
    return [list(rows) for _, rows in groupby(found, lambda row: row["session_id"])]


def test_workload_is_cut_to_programs_calls_and_context(tmp_path):
    path = tmp_path / "w.jsonl"
    assert write(path, "--name", "sharegpt", "--programs", "9", "--calls", "3").exit_code == 0
    whole = sessions(path)
    assert len(whole) == 9
    assert max(map(len, whole)) == 3
    arrivals = [rows[0]["timestamp"] for rows in whole]
    assert arrivals == sorted(arrivals)
    more = ("--calls", "3", "--context", "1000")
    assert write(path, "--name", "sharegpt", "--programs", "9", *more).exit_code == 0
    cut = sessions(path)
    assert sum(map(len, cut)) < sum(map(len, whole))
    # A generated word is a token.
    assert all(
        sum(len(m["content"].split()) for m in row["messages"]) < 1000
        for rows in cut
        for row in rows
    )


@pytest.mark.parametrize("workload", ["lats", "nothing"])
def test_unfit_workloads_are_refused(workload, tmp_path):
    result = write(tmp_path / "w.jsonl", "--name", workload)
    assert result.exit_code == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [["--aiperf-out", "x"], ["--out", "x"], ["--name", "bfcl"],
     ["--aiperf-results", "x", "--aiperf-out", "y", "--name", "bfcl"]],
)  # fmt: skip
def test_a_command_either_writes_or_reads(arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert runner.invoke(bench, ["workload", *arguments]).exit_code == 2
    assert list(tmp_path.iterdir()) == []


def test_results_are_read_and_errors_are_reported(tmp_path):
    about = {"x_correlation_id": "a", "benchmark_phase": "profiling"}
    times = {"request_start_ns": 0, "request_end_ns": 2_500_000_000}
    line = {"metadata": about | times}
    path = tmp_path / "profile_export.jsonl"
    path.write_text(json.dumps(line) + "\n")
    result = runner.invoke(bench, ["workload", "--aiperf-results", str(path)])
    assert result.exit_code == 0
    assert "2.5" in result.output
    path.write_text(json.dumps(line | {"error": {"code": 500}}) + "\n")
    assert runner.invoke(bench, ["workload", "--aiperf-results", str(path)]).exit_code == 1
    path.write_text("{}\n")
    assert runner.invoke(bench, ["workload", "--aiperf-results", str(path)]).exit_code == 2
