"""`weft bench peers --engines gpu`: a short run with a small model shape."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from support.peers import dialogues
from weft_bench.peers.host import read_gpus
from weft_engine.version_check import installed_version

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.engine,
    pytest.mark.skipif(not read_gpus(), reason="needs an NVIDIA GPU"),
    pytest.mark.skipif(not installed_version(), reason="needs vLLM"),
]


def test_fronts_play_the_same_programs_on_a_gpu(tmp_path):
    file = tmp_path / "gpu.json"
    data = dialogues(tmp_path / "data", 40, turns=4)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "weft_gateway.cli", "bench", "peers", "--engines", "gpu"),
            *("--data", str(data), "--shape", "1b", "--workloads", "tau_airline"),
            *("--programs", "12", "--seeds", "1", "--slots", "4", "--kv-blocks", "2048"),
            *("--fronts", "weft/round_robin,weft/fcfs,weft/resident", "--json", str(file)),
            *("--", "--enforce-eager"),
        ],
        capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + done.stdout
    document = json.loads(file.read_text())
    assert document["configuration"]["host"]["gpu"]["memory"] > 0
    assert document["configuration"]["host"]["versions"]["cuda"]
    turns = [turn["slices"]["all"] for turn in document["turns"]]
    assert len(turns) == 3
    for figures in turns:
        assert (figures["programs"], figures["errors"], figures["untold"]) == (12, 0, 0)
    assert len({figures["output_tokens"] for figures in turns}) == 1
