"""`weft serve` as a separate process."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.metadata import version

import httpx
import pytest
from support.stack import free_port
from support.waiting import DEADLINE_S, RUN_S
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from weft_bench.stack.gateway import command

pytestmark = pytest.mark.system

SERVE = [sys.executable, "-m", "weft_gateway.cli", "serve"]
COMMAND = [*SERVE, "--replica", "http://127.0.0.1:9"]
TIMED = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:,]{12} [A-Z]+ ")


def run(command: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
        env={**os.environ, **variables},
    )


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def server(port: int) -> Iterator[subprocess.Popen[str]]:
    with serving(port) as process:
        yield process


@contextlib.contextmanager
def serving(port: int, line: list[str] | None = None) -> Iterator[subprocess.Popen[str]]:
    """Run the gateway until the context ends."""
    process = subprocess.Popen(
        line or [*COMMAND, "--port", str(port)],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ},
    )
    deadline = time.monotonic() + RUN_S
    try:
        while True:
            try:
                httpx.get(f"http://127.0.0.1:{port}/health", trust_env=False)
                break
            except httpx.TransportError:
                assert process.poll() is None, "the gateway ended"
                assert time.monotonic() < deadline, "the gateway does not answer"
                time.sleep(0.05)
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


@pytest.mark.parametrize("number", [signal.SIGINT])
def test_serve_stops_on_a_signal(server: subprocess.Popen[str], number: signal.Signals) -> None:
    server.send_signal(number)
    server.wait(timeout=DEADLINE_S)
    assert server.returncode == 0
    assert server.stderr is not None
    stderr = server.stderr.read()
    assert "Traceback" not in stderr
    assert (
        f"{number.name}: accepting no new connections; calls in flight have 30 s to finish"
        in stderr
    )
    assert stderr.splitlines()[-1].endswith("stopped")


def test_a_taken_port_is_a_clear_error(server: subprocess.Popen[str], port: int) -> None:
    second = run([*COMMAND, "--port", str(port)])
    assert second.returncode == 1
    assert "address already in use" in second.stderr
    assert "Traceback" not in second.stderr
    assert all(TIMED.match(line) for line in second.stderr.splitlines())


def test_refused_websockets_are_counted_and_not_logged(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_API_KEYS", "sk-a")
    url, key = f"ws://127.0.0.1:{port}/v1/responses", {"authorization": "Bearer sk-a"}
    line = command({"websockets_per_tenant": 1}, ["http://127.0.0.1:9"], port)
    with serving(port, line) as process:
        with connect(url, additional_headers=key, proxy=None):
            refused = {}
            for headers in ({}, key | {"origin": "http://elsewhere"}, key):
                with pytest.raises(InvalidStatus) as caught:
                    connect(url, additional_headers=headers, proxy=None)
                answer = caught.value.response
                refused[answer.status_code] = json.loads(answer.body)["error"]["code"]
        metrics = httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False).text
        process.send_signal(signal.SIGTERM)
        _, stderr = process.communicate(timeout=DEADLINE_S)
    assert refused == {
        401: "invalid_api_key",
        403: "origin_not_allowed",
        429: "too_many_websockets",
    }
    for code in refused.values():
        assert f'weft_errors_total{{code="{code}"}} 1.0' in metrics
    assert "ERROR" not in stderr
    assert all(TIMED.match(line) for line in stderr.splitlines())


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("WEFT_REPLICAS", "http://h:notaport"),
        ("WEFT_REDIS_URL", "redis://h:abc"),
        ("WEFT_REPLICA_API_KEY", "key\n"),
        ("WEFT_API_KEYS", ","),
        ("WEFT_DRAIN_S", "-1"),
    ],
)
def test_an_invalid_setting_is_a_one_line_error(variable: str, value: str) -> None:
    done = run(SERVE, **{variable: value})
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("weft serve: ")
    assert f"({variable})" in line


def test_an_unknown_variable_is_a_warning(port: int) -> None:
    with socket.create_server(("127.0.0.1", port)):
        done = run([*COMMAND, "--port", str(port)], WEFT_DRAIN="3", WEFT_ENGINE_SETTINGS="{}")
    warnings = [line for line in done.stderr.splitlines() if "is not a known setting" in line]
    assert warnings == [
        "weft serve: warning: WEFT_DRAIN is not a known setting; did you mean WEFT_DRAIN_S?"
    ]


def test_a_misspelt_key_setting_stops_the_start() -> None:
    done = run(SERVE, WEFT_API_KEY="sk-secret")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line == "weft serve: WEFT_API_KEY is not a known setting; did you mean WEFT_API_KEYS?"


def test_a_removed_setting_stops_the_start() -> None:
    done = run(SERVE, WEFT_REQUESTS_PER_MINUTE="60", WEFT_LISTENERS="")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line == (
        "weft serve: WEFT_REQUESTS_PER_MINUTE was removed: the [default] table of WEFT_KEYS_FILE "
        "has requests_per_minute"
    )


def test_an_open_address_without_keys_is_a_warning(port: int) -> None:
    with socket.create_server(("0.0.0.0", port)):
        command = [*COMMAND, "--host", "0.0.0.0", "--port", str(port)]
        assert "ANYONE who reaches 0.0.0.0" in run(command).stderr
        assert "ANYONE" not in run(command, WEFT_API_KEYS="k").stderr


def test_the_open_file_limit_bounds_the_connections(port: int) -> None:
    limited = ["bash", "-c", 'ulimit -n 400 && exec "$@"', "bash", *COMMAND, "--port", str(port)]
    with socket.create_server(("127.0.0.1", port)):
        assert "(ulimit -n 400) allows only 72" in run(limited).stderr


def test_a_gateway_without_replicas_logs_a_warning(port: int) -> None:
    with socket.create_server(("127.0.0.1", port)):
        done = run([*SERVE, "--port", str(port)])
    assert "no replica is configured (--replica or WEFT_REPLICAS)" in done.stderr


def output(command: list[str], port: int, **variables: str) -> str:
    """Run a gateway until it answers, stop it, and return what it has written to stderr."""
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env={**os.environ, **variables}
    ) as process:
        deadline = time.monotonic() + RUN_S
        while time.monotonic() < deadline and process.poll() is None:
            with contextlib.suppress(httpx.TransportError):
                httpx.get(f"http://127.0.0.1:{port}/health", trust_env=False)
                break
            time.sleep(0.05)
        process.terminate()
        return process.communicate(timeout=RUN_S)[1]


@pytest.mark.parametrize(
    ("keys", "host", "said"),
    [
        ("", "127.0.0.1", "http://127.0.0.1:{}/v1 (listening on 127.0.0.1, port {}); replicas: 2; "
         "API keys: not required"),
        ("k", "0.0.0.0", "http://127.0.0.1:{}/v1 (listening on 0.0.0.0, port {}); replicas: 2; "
         "API keys: required"),
    ],
)  # fmt: skip
def test_serve_says_where_it_listens_and_what_it_serves(
    keys: str, host: str, said: str, port: int
) -> None:
    command = [*COMMAND, "--replica", "http://127.0.0.1:10", "--host", host, "--port", str(port)]
    stderr = output(command, port, WEFT_API_KEYS=keys)
    assert said.format(port, port) in stderr


def test_the_command_has_a_version() -> None:
    done = run([*SERVE[:-1], "--version"])
    assert (done.returncode, done.stdout) == (0, f"weft {version('weft-gateway')}\n")


def test_an_unreachable_redis_is_reported_in_words(port: int) -> None:
    nowhere = free_port()
    variables = {"WEFT_REDIS_URL": f"redis://localhost:{nowhere}"}
    stderr = output(command({"redis_timeout_s": 2}, port=port), port, **variables)
    assert f"at redis://localhost:{nowhere} cannot be reached: Connection refused" in stderr
