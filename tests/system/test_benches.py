"""The bench commands, run as a user runs them, on engines without a model and the real gateway."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.stack import until
from support.waiting import RUN_S
from weft_bench.stack.processes import NotReady, cpu_seconds, free_port, running

pytestmark = pytest.mark.system

WEFT = [sys.executable, "-m", "weft_gateway.cli"]


@pytest.mark.parametrize("more", [[], ["--plugin", "--session"]])
def test_overhead_measures_the_gateway_and_writes_figures(more, tmp_path):
    file = tmp_path / "overhead.json"
    done = subprocess.run(
        [*WEFT, "bench", "overhead", "--peers", "none", "--concurrency", "1,4", "--requests", "40",
         "--seconds", "0.1", "--rounds", "1", "--json", str(file), *more],
        capture_output=True, text=True, timeout=RUN_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    figures = {f["name"]: f for f in json.loads(file.read_text())["figures"]}
    for kind in ("plain", "stream"):
        for width in (1, 4):
            assert figures[f"{kind}/{width}/weft/rate"]["value"] > 0
            assert figures[f"{kind}/{width}/weft/errors"]["value"] == 0


@pytest.mark.parametrize("more", [[], ["--growing"]])
def test_overhead_measures_bodies_by_size_beside_a_floor(more, tmp_path):
    file = tmp_path / "bodies.json"
    done = subprocess.run(
        [*WEFT, "bench", "overhead", "--peers", "none", "--bodies", "2k,30k", "--plugin",
         "--requests", "10", "--rounds", "1", "--json", str(file), *more],
        capture_output=True, text=True, timeout=RUN_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    figures = {f["name"]: f for f in json.loads(file.read_text())["figures"]}
    for named in ("yes", "no"):
        for size in (2000, 30_000):
            for proxy in ("weft", "floor"):
                assert figures[f"{named}/{size}/{proxy}/cpu"]["value"] > 0
                assert figures[f"{named}/{size}/{proxy}/errors"]["value"] == 0


def test_an_unknown_peer_is_refused():
    done = subprocess.run(
        [*WEFT, "bench", "overhead", "--peers", "nobody"], capture_output=True, text=True,
        timeout=RUN_S, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "litellm" in done.stderr


def _children(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(stat.parent.name))
    return found


def test_a_terminated_bench_stops_its_processes():
    bench = subprocess.Popen(
        [*WEFT, "bench", "overhead", "--peers", "none", "--requests", "100000"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        # Two engines and the gateway. More processes start with the measurement.
        until(
            lambda: len(_children(bench.pid)) >= 3,
            "the bench has not started its processes",
        )
        children = _children(bench.pid)
        bench.terminate()
        assert bench.wait(RUN_S) == 130
    finally:
        bench.kill()
    until(lambda: not any(map(_is_running, children)), "a process is still running")


def _is_running(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def test_cpu_seconds_reads_the_cpu_time_of_a_process(tmp_path):
    code = (
        "import http.server, sys, time\n"
        "while time.process_time() < 0.5: pass\n"
        "http.server.HTTPServer(('127.0.0.1', int(sys.argv[1])),"
        " http.server.SimpleHTTPRequestHandler).serve_forever()"
    )
    port = free_port()
    command = [sys.executable, "-c", code, str(port)]
    with running(command, f"http://127.0.0.1:{port}/", tmp_path / "x.log") as pid:
        # The exact time of the process, without rounding to hundredths of a second.
        assert cpu_seconds(pid) >= 0.5
    assert cpu_seconds(pid) == 0.0


def test_a_process_that_fails_to_start_is_an_error_with_its_log(tmp_path):
    command = [sys.executable, "-c", "print('broken by hand')"]
    with (
        pytest.raises(NotReady, match="broken by hand"),
        running(command, "http://127.0.0.1:9/", tmp_path / "x.log"),
    ):
        pass
