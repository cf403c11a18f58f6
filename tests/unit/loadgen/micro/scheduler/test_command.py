"""The scheduler bench as a command, at a small size."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner
from weft_bench import cli
from weft_bench.cli.parts import SchedulerOptions
from weft_bench.micro.scheduler.command import run

pytestmark = pytest.mark.engine


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["plas", "fcfs"])
def test_it_measures_all_cases_and_writes_figures(tmp_path, capsys, policy):
    file = tmp_path / "scheduler.json"
    options = SchedulerOptions(
        policy=policy, running=4, waiting=8, rounds=2, steps=10, warm_up=10, tenants=2,
        context=512, blocks=200, json_file=str(file),
    )  # fmt: skip
    assert run(options) == 0
    assert "weft over stock" in capsys.readouterr().out
    document = json.loads(file.read_text())
    assert document["configuration"]["policy"] == policy
    found = {f["name"]: f["value"] for f in document["figures"]}
    for case in ("steady", "quiet", "returning"):
        ours, stock = (found[f"{case}/{name}/schedule_p50"] for name in ("weft", "stock"))
        assert found[f"{case}/schedule_ratio"] == pytest.approx(ours / stock)
        assert found[f"{case}/weft/running"] > 0
    assert found["quiet/weft/admitted"] == 0


def test_an_unknown_policy_is_refused():
    done = CliRunner().invoke(cli.bench, ["scheduler", "--policy", "nonsense"])
    assert done.exit_code == 2
    assert "unknown policy 'nonsense'" in done.output
