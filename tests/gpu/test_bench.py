"""A short run of the GPU bench of docs/results/gpu.md, with a small model shape."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from weft_bench.gpu.host import read_gpus
from weft_engine.emulated.engines import find
from weft_engine.version_check import installed_version

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.engine,
    pytest.mark.skipif(not read_gpus(), reason="needs an NVIDIA GPU"),
    pytest.mark.skipif(not installed_version(), reason="needs vLLM"),
]


def test_four_systems_and_a_fit(tmp_path):
    file, engine = tmp_path / "gpu.json", tmp_path / "engine.json"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "weft_gateway.cli", "bench", "gpu", "--shape", "1b"),
            *("--workloads", "bfcl", "--loads", "1", "--window", "5", "--drain", "30"),
            *("--calibration", "10", "--slots", "16", "--max-model-len", "8192"),
            *("--kv-blocks", "2048", "--swap-gib", "1", "--rounds", "3"),
            *("--fit", str(engine), "--json", str(file), "--logs", str(tmp_path / "logs")),
            *("--", "--enforce-eager"),
        ],
        capture_output=True, text=True, timeout=1800, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + done.stdout
    document = json.loads(file.read_text())
    assert document["host"]["gpu"]["memory"] > 0
    assert document["versions"]["cuda"]
    assert len(document["cells"]) == 4
    programs = {values["programs"] for values in document["cells"].values()}
    assert len(programs) == 1
    for key, values in document["cells"].items():
        assert values["errors"] == 0, key
        assert values["output_tokens"] > 0
    assert document["cells"]["bfcl/1/vllm"]["prefix_hit_rate"] == 0
    cost = find(str(engine)).cost
    assert cost.step_s > 0
    # The time of a block on a GPU is longer than the noise.
    assert cost.swapped_block_s > 0
