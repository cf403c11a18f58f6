"""`weft bench attack` for a moment: real processes, which all end, and attacks that take place."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
from weft_bench.attack.attacks import ATTACKS
from weft_bench.stack.processes import free_port

pytestmark = pytest.mark.system

# One of each kind: heads, bodies, a timeout, many keys, WebSockets.
CHOSEN = (
    "endless headers",
    "1 MB of tiny messages",
    "slow heads",
    "connection flood",
    "idle WebSockets",
    "endless WebSocket message",
)


def _of_group(group: int) -> list[int]:
    """Processes of a process group that live."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[2]) == group and fields[0] != "Z":
                found.append(int(stat.parent.name))
    return found


def _bench(file: Path, attacks: str, goal_ms: float) -> tuple[int, str]:
    command = [sys.executable, "-m", "weft_gateway.cli", "bench", "attack", "--seconds", "0.6"]
    command += ["--rounds", "1", "--attacks", attacks, "--goal-ms", str(goal_ms)]
    bench = subprocess.Popen(
        [*command, "--json", str(file)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    out, error = bench.communicate(timeout=300)
    assert _of_group(bench.pid) == []
    return bench.returncode, out + error


def test_attacks_take_place_beside_an_honest_client(tmp_path: Path) -> None:
    file = tmp_path / "attack.json"
    status, said = _bench(file, ",".join(CHOSEN), 60_000)
    assert status == 0, said
    cells = {cell["attack"]: cell for cell in json.loads(file.read_text())["cells"]}
    assert list(cells) == list(CHOSEN)
    for name, cell in cells.items():
        assert cell["did"][ATTACKS[name].sign] > 0, name
        # All scheduled calls are made, however long one of them takes.
        assert cell["attacked"]["calls"] == [30]
        assert cell["attacked"]["errors"] == cell["alone"]["errors"] == 0


def test_a_missed_goal_is_named_and_fails_the_bench(tmp_path: Path) -> None:
    status, said = _bench(tmp_path / "attack.json", "many headers", -60_000)
    assert status == 1
    assert "weft bench attack: missed: many headers: the worst call" in said


def test_an_attacker_that_reaches_nothing_says_so() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "weft_bench.attack.attacker", url]
    done = subprocess.run(
        [*command, "--attack", "connection flood", "--model", "m"],
        input="\n", capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert set(json.loads(done.stdout).values()) == {0}
