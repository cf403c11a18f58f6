"""The GPU bench end to end on a CPU: vLLM alone and Weft, with real engines and the real gateway.

The tests use the same code path as a GPU run. They do not check durations.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from weft_bench.gpu.host import read_gpus
from weft_engine.version_check import installed_version

pytestmark = [
    pytest.mark.system,
    pytest.mark.engine,
    pytest.mark.skipif(not installed_version(), reason="needs vLLM"),
    pytest.mark.skipif(bool(read_gpus()), reason="engines would use the GPU of this machine"),
]

# With few slots and blocks, calls wait, preempt each other and swap.
COMMAND = [
    *(
        sys.executable,
        "-m",
        "weft_gateway.cli",
        "bench",
        "gpu",
        "--device",
        "cpu",
        "--shape",
        "tiny",
    ),
    *("--systems", "vllm-opt,ours", "--workloads", "sharegpt", "--loads", "2", "--gap-scale", "0"),
    *("--window", "2", "--drain", "300", "--calibration", "2", "--slots", "2"),
    *("--max-model-len", "1024", "--step-tokens", "1024", "--kv-blocks", "64"),
    *("--swap-gib", "0.05", "--first-quantum", "0.05"),
]


def test_systems_run_the_same_programs_and_a_second_run_reuses_the_figures(tmp_path):
    file = tmp_path / "gpu.json"
    command = [*COMMAND, "--json", str(file), "--logs", str(tmp_path / "logs")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1000, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    document = json.loads(file.read_text())
    stock, ours = (document["cells"][f"sharegpt/2/{name}"] for name in ("vllm-opt", "ours"))
    assert stock["programs"] == ours["programs"] >= 3
    for cell in (stock, ours):
        assert cell["errors"] == cell["cut"] == 0
        assert cell["calls"] >= cell["programs"]
        assert 0 < cell["prefix_hit_rate"] < 1
        assert 0 < cell["response_p50"] <= cell["response_p99"]
    # Lengths are fixed, so both systems have equal numbers of calls and tokens.
    assert stock["calls"] == ours["calls"]
    assert stock["output_tokens"] == ours["output_tokens"]
    # vLLM alone preempts no call by policy. The plugin reports the preemptions of Weft.
    assert stock["displacements"] == 0
    assert document["engines"]["ours"]["plugin"] is True
    assert document["engines"]["vllm-opt"]["plugin"] is False
    assert document["engines"]["ours"]["kv_blocks"] == 64
    assert document["host"]["gpu"] is None
    assert "CPU, no GPU, tiny: figures" in done.stdout

    again = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert again.returncode == 0, again.stderr
    assert "starting" not in again.stdout
    assert json.loads(file.read_text())["cells"] == document["cells"]
    # Figures of another device, shape or setting are not added to the file.
    other = [*command, "--slots", "3"]
    refused = subprocess.run(other, capture_output=True, text=True, timeout=60, check=False)
    assert refused.returncode == 2
    assert "slots 2, here 3" in refused.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="needs /dev")
def test_the_command_reports_a_missing_gpu_and_starts_nothing():
    command = [sys.executable, "-m", "weft_gateway.cli", "bench", "gpu"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "no NVIDIA GPU found" in done.stderr
    assert done.stdout == ""
