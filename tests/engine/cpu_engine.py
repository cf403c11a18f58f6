"""Runs a script of this folder with a real engine on the CPU in a separate process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from support.waiting import RUN_S
from weft_deploy.local import demo_model

# One process without plugins, on one core. vLLM reads some of it at import.
_ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_PLUGINS": "",
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
}


def run(script: str, *arguments: str) -> dict[str, Any]:
    """Run the script with the demo model and these arguments. Returns the object that it prints."""
    done = subprocess.run(
        [
            sys.executable, str(Path(__file__).with_name(script)),
            str(demo_model.ensure_demo_model()), *arguments,
        ],
        capture_output=True, text=True, timeout=RUN_S, check=False,
        env={**os.environ, **_ENVIRONMENT},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    line = next(line for line in done.stdout.splitlines() if line.startswith("RESULT "))
    found: dict[str, Any] = json.loads(line.removeprefix("RESULT "))
    return found
