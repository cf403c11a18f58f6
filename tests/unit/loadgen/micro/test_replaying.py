"""The bench of replays beside a gateway."""

from __future__ import annotations

import json

import pytest
from weft_bench.cli.parts import ReplayingOptions
from weft_bench.micro.replaying import run, trace_of
from weft_gateway.tuning.replay.search import search


def test_the_trace_has_the_calls_and_can_be_replayed():
    assert len(trace_of(2000).calls) == 2000
    small = trace_of(40)
    small.check()
    assert search(small).calls > 40


@pytest.mark.slow
def test_the_command_compares_windows_with_and_without_replays(tmp_path, capsys):
    file = tmp_path / "replaying.json"
    options = ReplayingOptions(calls=40, every_ms=20.0, seconds=0.5, rounds=1, json_file=str(file))
    assert run(options) == 0
    assert "beside a replay" in capsys.readouterr().out
    figures = json.loads(file.read_text())["figures"]
    names = {one["name"] for one in figures}
    assert {"alone/p99", "beside a replay/p99", "beside a replay/over"} <= names
