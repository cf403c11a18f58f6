"""The bench of tags and pins."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("vllm")

from weft_bench.micro.scheduler import retention


def test_each_step_is_measured(capsys):
    retention.main(["--cache", "100", "--context", "32", "--rounds", "1"])
    found = json.loads(capsys.readouterr().out)
    assert {"note, other program", "retain", "release", "forget"} <= found.keys()
    assert all(spent > 0 for spent in found.values())
