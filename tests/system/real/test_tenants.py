"""`weft bench tenants` on a real engine: every attack takes place, and the exit status shows
misses.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from weft_bench.tenants.agents import ATTACKS, PINS

pytestmark = [pytest.mark.system, pytest.mark.engine]


def test_every_attack_is_measured(tmp_path: Path) -> None:
    file = tmp_path / "tenants.json"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "weft_gateway.cli", "bench", "tenants", "--kv-blocks", "64"),
            *("--policy", "resident", "--agents", "2", "--threads", "4", "--calls", "4"),
            *("--max-tokens", "4", "--repeats", "1", "--json", str(file)),
        ],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    missed = [line for line in done.stderr.splitlines() if ": missed: " in line]
    assert done.returncode == bool(missed), done.stderr + done.stdout
    # The test does not check durations.
    assert not [line for line in missed if "did not take place" in line or "failed" in line]
    cells = json.loads(file.read_text())["cells"]
    alone, *columns = [cell for cell in cells if "repeats" in cell]
    assert [column["attack"] for column in columns] == [attack.name for attack in ATTACKS]
    for column in (alone, *columns):
        (seconds,) = column["repeats"]
        assert len(seconds) == 8
        assert all(second > 0 for second in seconds)
    own, control = [cell for cell in cells if "during" in cell]
    assert [own["attack"], control["attack"]] == [attack.name for attack in PINS]
    assert own["before"] > 0.5
    assert control["during"] < own["during"]
