"""`weft bench tenants` on a real engine: each cell is measured and no call fails."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.system, pytest.mark.engine]


def test_both_attacks_are_measured(tmp_path: Path) -> None:
    file = tmp_path / "tenants.json"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "weft_gateway.cli", "bench", "tenants", "--kv-blocks", "300"),
            *("--policy", "warm_plas", "--agents", "2", "--threads", "4", "--calls", "2"),
            *("--max-tokens", "4", "--json", str(file)),
        ],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + done.stdout
    figures = {f["name"]: f["value"] for f in json.loads(file.read_text())["figures"]}
    assert figures["warm_plas/alone/honest_call"] > 0
    assert figures["warm_plas/a program per call/slowdown"] > 0
    assert figures["warm_plas/pins/hit_rate_before"] > 0.5
    assert 0 <= figures["warm_plas/pins/hit_rate_after"] <= 1
