"""`weft bench agents --engines gpu`: a short run with a small model shape."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from support.sessions import sessions
from support.waiting import RUN_S
from weft_bench.agents.host import read_gpus
from weft_engine.version_check import installed_version

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.engine,
    pytest.mark.skipif(not read_gpus(), reason="needs an NVIDIA GPU"),
    pytest.mark.skipif(not installed_version(), reason="needs vLLM"),
]


def test_systems_play_the_same_sessions_on_a_gpu(tmp_path):
    file = tmp_path / "gpu.json"
    data = sessions(tmp_path / "data", 20)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "weft_gateway.cli", "bench", "agents", "--engines", "gpu"),
            *("--data", str(data), "--shape", "1b", "--kv-blocks", "600", "--gap", "0.5"),
            *("--json", str(file), "--", "--enforce-eager", "--max-model-len", "9000"),
        ],
        capture_output=True, text=True, timeout=RUN_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + done.stdout
    plays = json.loads(file.read_text())["plays"]
    assert [one["play"]["system"] for one in plays] == ["resident", "stock"]
    for one in plays:
        assert one["values"]["errors"] == 0
        assert one["values"]["hit_rate"] > 0
