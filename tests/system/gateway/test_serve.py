"""`weft serve` as a process of its own."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import httpx
import pytest

pytestmark = pytest.mark.system

COMMAND = [sys.executable, "-m", "gateway.cli", "serve", "--replica", "http://127.0.0.1:9"]


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        chosen: int = probe.getsockname()[1]
    return chosen


@pytest.fixture
def server(port: int) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [*COMMAND, "--port", str(port)], stderr=subprocess.PIPE, text=True, env={**os.environ}
    )
    deadline = time.monotonic() + 60
    while True:
        try:
            httpx.get(f"http://127.0.0.1:{port}/health", trust_env=False)
            break
        except httpx.TransportError:
            assert process.poll() is None, "the gateway ended"
            assert time.monotonic() < deadline, "the gateway does not answer"
            time.sleep(0.05)
    yield process
    process.kill()
    process.wait()
    assert process.stderr is not None
    process.stderr.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_on_a_signal(server: subprocess.Popen[str], number: signal.Signals) -> None:
    server.send_signal(number)
    server.wait(timeout=30)
    assert server.returncode == 0
    assert server.stderr is not None
    assert "Traceback" not in server.stderr.read()


def test_a_taken_port_is_a_clear_error(server: subprocess.Popen[str], port: int) -> None:
    second = subprocess.run(
        [*COMMAND, "--port", str(port)], capture_output=True, text=True, timeout=60, check=False
    )
    assert second.returncode == 1
    assert "address already in use" in second.stderr
    assert "Traceback" not in second.stderr


def test_a_wrong_setting_names_itself() -> None:
    done = subprocess.run(
        [*COMMAND, "--port", "8080"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "WEFT_IDLE_TIMEOUT_S": "-1"},
    )
    assert done.returncode == 2
    assert "WEFT_IDLE_TIMEOUT_S" in done.stderr
