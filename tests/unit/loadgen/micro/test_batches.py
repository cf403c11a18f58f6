"""The bench of batches as a command, at a small size."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner
from weft_bench import cli


@pytest.mark.slow
def test_it_prints_and_writes_its_figures(tmp_path):
    out = tmp_path / "out.json"
    options = ["--requests", "50", "--characters", "400", "--topics", "3", "--json", str(out)]
    done = CliRunner().invoke(cli.bench, ["batches", *options])
    assert done.exit_code == 0, done.output
    assert "processor time per request, us" in done.output
    figures = {each["name"]: each["value"] for each in json.loads(out.read_text())["figures"]}
    assert figures["50/400/cpu"] > 0
    assert figures["50/400/memory"] > figures["50/400/before"] * 0.9
