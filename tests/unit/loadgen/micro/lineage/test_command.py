"""The lineage bench as a command, at a small size."""

from __future__ import annotations

import json
import lzma

import pytest
from support.lineage import synthetic
from typer.testing import CliRunner
from weft_bench import cli


@pytest.mark.slow
def test_it_prints_and_writes_its_figures(tmp_path):
    (tmp_path / "tau_airline").mkdir()
    with lzma.open(tmp_path / "tau_airline/trajectories.jsonl.xz", "wt") as file:
        for calls in synthetic(seed=1, programs=8):
            last = json.loads(calls[-1].body)["messages"]
            answer = json.loads(calls[-1].answer)["choices"][0]["message"]
            file.write(json.dumps({"messages": [*last, answer]}) + "\n")
    out = tmp_path / "out.json"
    options = ["--data", str(tmp_path), "--sets", "tau_airline", "--rounds", "1"]
    done = CliRunner().invoke(cli.bench, ["lineage", *options, "--json", str(out)])
    assert done.exit_code == 0, done.output
    assert "answers unseen" in done.output
    document = json.loads(out.read_text())
    figures = {figure["name"]: figure["value"] for figure in document["figures"]}
    assert figures["tau_airline/as recorded/at_once/precision"] >= 0.99
    assert figures["tau_airline/as recorded/programs"] == 8
    assert "cost/301 messages, goes on/p99" in figures

    done = CliRunner().invoke(cli.bench, ["lineage", *options, "--names"])
    assert done.exit_code == 0, done.output
    assert "one cache key" in done.output


def test_unknown_sets_and_missing_data_are_refused(tmp_path):
    run = CliRunner().invoke
    assert run(cli.bench, ["lineage", "--data", str(tmp_path), "--sets", "x"]).exit_code == 2
    assert run(cli.bench, ["lineage", "--data", str(tmp_path)]).exit_code == 2
