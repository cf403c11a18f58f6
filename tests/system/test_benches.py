"""The bench commands, run as a user runs them, on engines without a model and the real gateway."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from support.stack import until
from weft_bench.stack.processes import NotReady, cpu_seconds, free_port, running

pytestmark = pytest.mark.system

WEFT = [sys.executable, "-m", "weft_gateway.cli"]


@pytest.mark.parametrize("more", [[], ["--plugin", "--session"]])
def test_overhead_measures_the_gateway_and_writes_figures(more, tmp_path):
    file = tmp_path / "overhead.json"
    done = subprocess.run(
        [*WEFT, "bench", "overhead", "--peers", "none", "--concurrency", "1,4", "--requests", "40",
         "--seconds", "0.1", "--rounds", "1", "--json", str(file), *more],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    figures = {f["name"]: f for f in json.loads(file.read_text())["figures"]}
    for kind in ("plain", "stream"):
        for width in (1, 4):
            assert figures[f"{kind}/{width}/weft/rate"]["value"] > 0
            assert figures[f"{kind}/{width}/weft/errors"]["value"] == 0


def test_an_unknown_peer_is_refused():
    done = subprocess.run(
        [*WEFT, "bench", "overhead", "--peers", "nobody"], capture_output=True, text=True,
        timeout=60, check=False,
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
            wait_s=60,
        )
        children = _children(bench.pid)
        bench.terminate()
        assert bench.wait(60) == 130
    finally:
        bench.kill()
    until(lambda: not any(map(_is_running, children)), "a process is still running", wait_s=20)


def _is_running(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory):
    folder: Path = tmp_path_factory.mktemp("replay")
    engines = [free_port(), free_port()]
    simulated = [*WEFT, "bench", "replica", "--speed-up", "100", "--port"]
    urls = [f"http://127.0.0.1:{port}" for port in engines]
    port = free_port()
    serve = [*WEFT, "serve", "--port", str(port)]
    for url in urls:
        serve += ["--replica", url]
    base = f"http://127.0.0.1:{port}"
    with (
        running([*simulated, str(engines[0])], f"{urls[0]}/health", folder / "0.log"),
        running([*simulated, str(engines[1])], f"{urls[1]}/health", folder / "1.log"),
        running(serve, f"{base}/health", folder / "gateway.log"),
    ):
        yield base


def test_replay_runs_the_same_programs_under_each_policy(gateway, tmp_path):
    file, plot = tmp_path / "replay.json", tmp_path / "replay.png"
    assert httpx.post(f"{gateway}/weft/policy", json={"policy": "atlas"}).json()["applied"]
    done = subprocess.run(
        [*WEFT, "bench", "replay", "--base-url", gateway, "--programs", "5", "--rate", "50",
         "--gap-scale", "0", "--json", str(file), "--plot", str(plot)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    document = json.loads(file.read_text())
    figures = {f["name"]: f["value"] for f in document["figures"]}
    for name in ("programs", "calls", "output_tokens"):
        assert figures[f"fcfs/{name}"] == figures[f"plas/{name}"] > 0
    assert figures["fcfs/errors"] == 0
    assert figures["fcfs/service_mean"] > 0
    assert 0 < figures["fcfs/prefix_hit_rate"] < 1
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert document["configuration"]["base_url"] == gateway
    assert document["configuration"]["engines"] == "simulated"
    assert "simulated: synthetic" in done.stdout
    assert "replicas" not in document["configuration"]
    state = httpx.get(f"{gateway}/weft/state").json()
    orders = {r["answer"]["engines"][0]["policy"] for r in state["replicas"].values()}
    assert orders == {"atlas"}, "the bench did not restore the policy of the engines"
    table = state["table"]
    assert table["violations"] == []
    assert table["in_flight"] == {}
    assert httpx.get(f"{gateway}/v1/sessions").json()["data"] == []


def test_replay_uses_the_recorded_arrivals_of_a_written_workload(gateway, tmp_path):
    trace, file = tmp_path / "w.jsonl.xz", tmp_path / "replay.json"
    write = ["workload", "--name", "web_search", "--programs", "4", "--out", str(trace)]
    play = ["replay", "--base-url", gateway, "--trace", str(trace), "--programs", "4",
            "--rate", "50", "--arrivals", "recorded", "--gap-scale", "0",
            "--json", str(file)]  # fmt: skip
    for arguments in (write, play):
        done = subprocess.run(
            [*WEFT, "bench", *arguments], capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
    document = json.loads(file.read_text())
    figures = {f["name"]: f["value"] for f in document["figures"]}
    assert figures["fcfs/errors"] == figures["plas/errors"] == 0
    assert figures["fcfs/calls"] == figures["plas/calls"] > 4
    assert document["configuration"]["trace_name"] == "web_search"
    # The workload file has its own lengths, which are replayed unchanged.
    assert "lengths divided by" not in document["configuration"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--trace", "/no/such/trace"], "/no/such/trace"),
        (["--policy", "nonsense"], "nonsense"),
        (["--arrivals", "weekly"], "weekly"),
        (["--arrivals", "recorded"], "has no arrival times"),
    ],
)
def test_invalid_options_of_replay_are_a_clear_error(gateway, options, message):
    done = subprocess.run(
        [*WEFT, "bench", "replay", "--base-url", gateway, "--programs", "1", *options],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert message in done.stderr


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
