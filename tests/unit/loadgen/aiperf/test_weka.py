"""Recorded sessions as files of a `weka_trace`."""

from __future__ import annotations

import json
from typing import Any

from support.sessions import sessions
from typer.testing import CliRunner
from weft_bench.aiperf.weka import traces
from weft_bench.cli import bench


def asked(tokens: int) -> dict[str, Any]:
    return {"in": tokens, "out": 10, "hash_ids": [1], "t": 0.0}


def test_requests_beyond_the_context_are_left_out_also_of_sub_agents():
    agent = {"type": "subagent", "t": 5.0, "duration_ms": 2000, "requests": [asked(30), asked(300)]}
    empty = {"type": "subagent", "t": 5.0, "requests": [asked(300)]}
    requests = [asked(50), agent, empty, asked(200), asked(60)]
    (found,) = traces([{"id": "a", "block_size": 64, "requests": requests}], 100)
    assert found["id"] == "a"
    assert [one.get("in", "agent") for one in found["requests"]] == [50, "agent", 60]
    assert [one["in"] for one in found["requests"][1]["requests"]] == [30]
    assert found["requests"][1]["t"] == 3.0
    (first,) = traces([{"requests": [asked(1), agent, asked(2), agent, asked(3)]}], 100, calls=2)
    assert [one.get("in") for one in first["requests"]] == [1, None, 2, None]
    assert list(traces([{"requests": [asked(50), asked(200)]}], 100)) == []


def test_a_command_writes_one_file_a_session(tmp_path):
    data, out = sessions(tmp_path / "data", 3), tmp_path / "weka"
    line = ["workload", "--name", str(data / "coding_sessions"), "--weka-out", str(out)]
    done = CliRunner().invoke(bench, [*line, "--programs", "2"])
    assert done.exit_code == 0, done.output
    written = [json.loads(file.read_text()) for file in sorted(out.iterdir())]
    assert len(written) == 2
    assert all(len(one["requests"]) == 3 and one["block_size"] == 64 for one in written)
    # The folder exists now.
    assert CliRunner().invoke(bench, line).exit_code == 2
    both = CliRunner().invoke(bench, [*line, "--out", str(tmp_path / "x")])
    assert both.exit_code == 2
    other = CliRunner().invoke(bench, ["workload", "--name", "sharegpt", "--weka-out", "y"])
    assert other.exit_code == 2
