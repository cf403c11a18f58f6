"""Dialogues replayed through the gateway to real engines."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.stack import ROOT

pytestmark = [pytest.mark.system, pytest.mark.engine]

DATA = ROOT.parent / "shared" / "data"
REPLAY = [sys.executable, "-m", "weft_gateway.cli", "bench", "replay"]


def replay(file: Path, *options: str) -> dict[str, float]:
    done = subprocess.run(
        [*REPLAY, "--json", str(file), "--rate", "20", "--gap-scale", "0", *options],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + done.stdout
    assert "fcfs" in done.stdout
    return {f["name"]: f["value"] for f in json.loads(file.read_text())["figures"]}


def check(figures: dict[str, float], programs: int) -> None:
    for policy in ("fcfs", "plas"):
        assert figures[f"{policy}/programs"] == programs
        assert figures[f"{policy}/errors"] == 0
        assert figures[f"{policy}/service_mean"] > 0
        assert figures[f"{policy}/prefix_hit_rate"] > 0.3
    for same in ("calls", "output_tokens"):
        assert figures[f"fcfs/{same}"] == figures[f"plas/{same}"]


def test_synthetic_dialogues_are_replayed(stack, tmp_path):
    options = ["--base-url", stack.url, "--programs", "2", "--output-scale", "0.2"]
    check(replay(tmp_path / "f.json", *options), 2)


@pytest.mark.skipif(not DATA.is_dir(), reason="the recorded traces are not next to this checkout")
@pytest.mark.parametrize("trace", ["tau_airline", "coding_sessions", "tree_of_thoughts"])
def test_recorded_traces_are_replayed(stack, tmp_path, trace):
    options = ["--base-url", stack.url, "--trace", str(DATA / trace), "--programs", "2"]
    check(replay(tmp_path / "f.json", *options, "--output-scale", "0.2"), 2)


def test_replay_starts_its_own_gateway_and_runs_every_policy_with_few_blocks(tmp_path):
    options = ["--programs", "4", "--replicas", "1", "--slots", "2", "--policy", "all"]
    # Programs that arrive quickly and without pauses keep the queue filled.
    options += ["--rate", "50", "--gap-scale", "0"]
    # The KV cache is smaller than the programs need, so calls are preempted and some KV is swapped.
    options += ["--kv-blocks", "80", "--max-model-len", "2048", "--swap-gib", "0.05"]
    file = tmp_path / "f.json"
    figures = replay(file, *options, "--tags", "off")
    for order in ("fcfs", "program_fifo", "mlfq", "plas", "atlas", "urgency", "vtc", "srpt"):
        assert figures[f"{order}/errors"] == 0
        assert figures[f"{order}/output_tokens"] == figures["fcfs/output_tokens"] > 0
        assert figures[f"{order}/preemptions"] >= figures[f"{order}/displacements"]
    assert figures["fcfs/displacements"] == 0
    assert sum(figures[f"{order}/displacements"] for order in ("plas", "atlas", "srpt")) > 0
    assert json.loads(file.read_text())["configuration"]["context"] == 2048


def test_engines_without_experiments_refuse_srpt(stack):
    options = ["--base-url", stack.url, "--programs", "1", "--policy", "fcfs,srpt"]
    done = subprocess.run(
        [*REPLAY, *options], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 2
    assert "experiments" in done.stderr
    assert "calls" not in done.stdout, "the bench made calls"
