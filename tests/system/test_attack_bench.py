"""A short run of `weft bench attack` with real processes: the attacks take place, and all processes
end.
"""

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

# One attack of each kind: heads, bodies, a timeout, many keys, WebSockets.
CHOSEN = (
    "endless headers",
    "1 MB of tiny messages",
    "slow heads",
    "connection flood",
    "idle WebSockets",
    "endless WebSocket message",
)


def _group_members(group: int) -> list[int]:
    """Return the running processes of a process group."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[2]) == group and fields[0] != "Z":
                found.append(int(stat.parent.name))
    return found


def _bench(file: Path, attacks: str, goal_ms: float) -> tuple[int, str]:
    # On a loaded machine, the gateway needs about a second to read up to the limit of a message.
    command = [sys.executable, "-m", "weft_gateway.cli", "bench", "attack", "--seconds", "1.5"]
    command += ["--rounds", "1", "--attacks", attacks, "--goal-ms", str(goal_ms)]
    bench = subprocess.Popen(
        [*command, "--json", str(file)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    out, error = bench.communicate(timeout=300)
    assert _group_members(bench.pid) == []
    return bench.returncode, out + error


def test_attacks_take_place_with_calls_of_an_ordinary_client(tmp_path: Path) -> None:
    file = tmp_path / "attack.json"
    status, output = _bench(file, ",".join(CHOSEN), 60_000)
    assert status == 0, output
    cells = {cell["attack"]: cell for cell in json.loads(file.read_text())["cells"]}
    assert list(cells) == list(CHOSEN)
    for name, cell in cells.items():
        assert cell["did"][ATTACKS[name].sign] > 0, name
        # The client makes all scheduled calls, also if one of them takes long.
        assert cell["attacked"]["calls"] == [75]
        assert cell["attacked"]["errors"] == cell["alone"]["errors"] == 0


def test_a_missed_goal_is_reported_and_fails_the_bench(tmp_path: Path) -> None:
    status, output = _bench(tmp_path / "attack.json", "many headers", -60_000)
    assert status == 1
    assert "weft bench attack: missed: many headers: the worst call" in output


def test_an_attacker_without_a_gateway_reports_zero() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "weft_bench.attack.attacker", url]
    done = subprocess.run(
        [*command, "--attack", "connection flood", "--model", "m"],
        input="\n", capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert set(json.loads(done.stdout).values()) == {0}
