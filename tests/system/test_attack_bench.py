"""`weft bench attack` with every attack for a moment: real processes, which all end."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
from weft_bench.attack.attacks import ATTACKS

pytestmark = pytest.mark.system


def _of_group(group: int) -> list[int]:
    """Processes of a process group that live."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[2]) == group and fields[0] != "Z":
                found.append(int(stat.parent.name))
    return found


def test_the_honest_client_is_served_beside_every_attack(tmp_path: Path) -> None:
    file = tmp_path / "attack.json"
    command = [sys.executable, "-m", "weft_gateway.cli", "bench", "attack", "--seconds", "0.3"]
    bench = subprocess.Popen(
        [*command, "--json", str(file)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    out, error = bench.communicate(timeout=300)
    assert bench.returncode == 0, out + error
    figures = {f["name"]: f["value"] for f in json.loads(file.read_text())["figures"]}
    for name in ATTACKS:
        assert name in out
        assert figures[f"{name}/attacked/calls"] > 0
        assert figures[f"{name}/attacked/errors"] == 0
    assert _of_group(bench.pid) == []
