"""`weft up` with the real supervisor, guards and gateway, and fake engines that start at once."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.processes import alive, descendants
from support.redis_server import RedisServer
from support.stack import free_port, until
from support.waiting import DEADLINE_S, RUN_S

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(sys.platform != "linux", reason="needs /proc"),
]

LAUNCHER = Path(__file__).parents[1] / "support" / "up_with_fakes.py"
# Two engines and a gateway have a guard with one child each. Each engine has one helper.
ALL_PROCESSES = 2 * 3 + 2


class Up:
    """One supervisor process. `output` is its stdout and stderr so far."""

    def __init__(
        self,
        folder: Path,
        *attach: str,
        port: int | None = None,
        host: str = "127.0.0.1",
        **variables: str,
    ) -> None:
        self.folder = folder
        self.port = port or free_port()
        self.url = f"http://{'[::1]' if host == '::' else '127.0.0.1'}:{self.port}"
        self.output = ""
        self.process = subprocess.Popen(
            [sys.executable, str(LAUNCHER), str(self.port), str(folder), host, *attach],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env={**os.environ, **variables},
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.output += line

    def until_output(self, text: str) -> None:
        def there() -> bool:
            assert text in self.output or self.process.poll() is None, self.output
            return text in self.output

        until(there, f"no {text!r} in the output")

    def ready(self) -> set[int]:
        """Wait until the supervisor is ready and return every process that it has started."""
        self.until_output("Ctrl-C stops everything.")
        pids = descendants(self.process.pid)
        assert len(pids) == ALL_PROCESSES
        return pids

    def wait(self) -> int:
        status = self.process.wait(DEADLINE_S)
        self._reader.join(DEADLINE_S)
        return status

    def line(self, start: str) -> str:
        found = [line for line in self.output.splitlines() if line.startswith(start)]
        assert len(found) == 1, self.output
        return found[0].removeprefix(start).strip()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Up]]:
    started: list[Up] = []

    def begin_up(
        *attach: str,
        hold: int | None = None,
        models: tuple[str, ...] = (),
        **options: Any,
    ) -> Up:
        folder = tmp_path / f"up-{len(started)}"
        folder.mkdir()
        if models:
            for number in range(2):
                (folder / str(number)).mkdir()
                (folder / str(number) / "models").write_text(json.dumps(models))
        if hold is not None:
            (folder / str(hold)).mkdir()
            (folder / str(hold) / "hold").touch()
        started.append(Up(folder, *attach, **options))
        return started[-1]

    yield begin_up
    for up in started:
        if up.process.poll() is None:
            up.process.terminate()
            up.wait()


def wait_for_end(pids: set[int]) -> None:
    until(lambda: not any(map(alive, pids)), f"alive of {pids}: {set(filter(alive, pids))}")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_every_process(start, number):
    # Tests under nohup inherit an ignored SIGHUP, and so would the process.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    up = start()
    pids = up.ready()
    up.process.send_signal(number)
    assert up.wait() == 0
    assert not any(map(alive, pids))


def test_a_second_ctrl_c_does_not_interrupt_the_shutdown(start):
    up = start()
    pids = up.ready()
    up.process.send_signal(signal.SIGINT)
    up.until_output("Stopping")
    up.process.send_signal(signal.SIGINT)
    assert up.wait() == 0
    assert not any(map(alive, pids))


def test_ctrl_c_during_the_start_stops_the_engines(start):
    up = start(hold=1)
    up.until_output("replica-0 is ready")
    pids = descendants(up.process.pid)
    assert pids
    up.process.send_signal(signal.SIGINT)
    assert up.wait() == 0
    assert "Base URL" not in up.output
    assert not any(map(alive, pids))


def test_a_crashed_engine_is_restarted_and_the_others_stay(start):
    up = start()
    pids = up.ready()
    (up.folder / "1" / "crash").write_text("once")
    up.until_output("Restarting replica-1 (1 of 3)")
    assert "replica-1 ended with status 3" in up.output
    assert "the fake engine found a reason to die" in up.output

    def healthy() -> list[bool]:
        replicas = httpx.get(f"{up.url}/health").json()["replicas"]
        return [replica["healthy"] for replica in replicas]

    until(lambda: healthy() == [True, True], "the replicas are not both healthy")
    assert up.process.poll() is None
    # One engine has three processes: its guard, the engine and its helper.
    until(
        lambda: len(set(filter(alive, pids))) == ALL_PROCESSES - 3,
        "the other processes did not stay",
    )


def test_an_engine_with_repeated_crashes_is_not_restarted_and_the_others_stay(start):
    up = start()
    up.ready()
    (up.folder / "1" / "crash").touch()
    up.until_output("replica-1 is not restarted. Still running: replica-0.")
    assert up.output.count("replica-1 ended with status 3") == 4
    body = {"model": "fake", "messages": []}
    answer = httpx.post(f"{up.url}/v1/chat/completions", json=body)
    assert answer.json()["choices"][0]["message"]["content"] == "I am fake."


def test_all_processes_stop_when_every_engine_crashes_repeatedly(start):
    up = start()
    pids = up.ready()
    (up.folder / "0" / "core-dies").touch()
    (up.folder / "1" / "crash").touch()
    assert up.wait() == 1
    assert "weft up: replica-0 has ended: its engine core died; the end of" in up.output
    assert "no reason to go on" in up.output
    assert "nanobind" not in up.output
    assert "leaked" not in up.output
    assert "replica-1 ended with status 3" in up.output
    assert not any(map(alive, pids))


def test_the_end_of_the_gateway_stops_all_processes(start):
    up = start()
    pids = up.ready()
    guards = [pid for pid in pids if b"weft_deploy.local.guard" in _command(pid)]
    (gateway,) = [guard for guard in guards if b"fake_engine.py" not in _command(guard)]
    subprocess.run(["kill", "-KILL", str(gateway)], check=True)
    assert up.wait() == 1
    assert "weft up: gateway ended" in up.output
    wait_for_end(pids)


def test_a_killed_supervisor_leaves_no_orphan(start):
    up = start()
    pids = up.ready()
    up.process.kill()
    assert up.wait() == -signal.SIGKILL
    wait_for_end(pids)


def test_a_killed_guard_stops_its_engine(start):
    up = start()
    pids = up.ready()
    guards = [pid for pid in pids if b"weft_deploy.local.guard" in _command(pid)]
    assert len(guards) == 3
    engine = next(g for g in guards if b"fake_engine.py" in _command(g))
    started = descendants(engine)
    (helper,) = [p for p in started if b"time.sleep" in _command(p)]
    subprocess.run(["kill", "-KILL", str(engine)], check=True)
    up.until_output("(1 of 3)")
    # The fake helper ignores the death of its engine. vLLM's processes watch their parent.
    wait_for_end({engine, *started} - {helper})
    if alive(helper):
        subprocess.run(["kill", "-KILL", str(helper)], check=True)


def _command(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def test_a_taken_port_is_an_error_before_any_start(start):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        up = start(port=port)
        assert up.wait() == 2
    assert f"127.0.0.1:{port}" in up.output
    assert "--port" in up.output
    assert not list(up.folder.iterdir())


def paste(up: Up) -> list[str]:
    """Run the printed commands as a user who pastes them does. Return what the models answer."""
    answers = []
    for name in ("curl", sys.executable):
        command = f"{name} {up.line(name)}"
        # A new terminal has no variables of the gateway.
        plain = {k: v for k, v in os.environ.items() if not k.startswith("WEFT_")}
        done = subprocess.run(
            ["sh", "-c", command], capture_output=True, text=True, timeout=RUN_S, env=plain
        )
        said = json.loads(done.stdout)["choices"][0]["message"]["content"] if name == "curl" else ""
        answers.append(said or done.stdout.strip())
    return answers


def test_the_printed_commands_work(start):
    up = start()
    up.ready()
    assert up.line("Base URL") == f"{up.url}/v1"
    assert Path(up.line("Logs"), "gateway.log").is_file()
    times = up.line("Ready after")
    assert all(part in times for part in ("model", "2 replicas", "gateway"))
    assert paste(up) == ["I am fake."] * 2


def test_the_printed_commands_work_on_a_gateway_with_keys(start):
    up = start(WEFT_API_KEYS="sk-one,sk-two", host="0.0.0.0")
    up.ready()
    assert paste(up) == ["I am fake."] * 2
    assert "sk-one" not in up.output + (up.folder / "logs" / "gateway.log").read_text()
    models = f"{up.url}/v1/models"
    for key, status in (("sk-one", 200), ("sk-two", 200), ("sk-three", 401)):
        answer = httpx.get(models, headers={"authorization": f"Bearer {key}"})
        assert answer.status_code == status


def test_the_printed_commands_work_for_attached_engines_and_any_name_of_a_model(start, tmp_path):
    keys = tmp_path / "keys.toml"
    keys.write_text('[keys.a]\ndigest = "0123456789abcdef"\n')
    engines = start(models=('it\'s $HOME/"q" \u00e9', "b"))
    engines.ready()
    health = httpx.get(f"{engines.url}/health").json()
    up = start(
        *(f"http://{one['name']}" for one in health["replicas"]),
        WEFT_KEYS_FILE=str(keys),
        host="::",
    )
    up.until_output("Ctrl-C stops everything.")
    for each in (engines, up):
        assert paste(each) == ['I am it\'s $HOME/"q" \u00e9.'] * 2
    assert httpx.get(f"{up.url}/v1/models").status_code == 401


def test_without_a_model_no_command_is_printed(start):
    engines = start(models=("",))
    engines.until_output("Ctrl-C stops everything.")
    assert "No replica lists a model." in engines.output
    assert "curl" not in engines.output


def test_attached_engines_are_used_and_outlive_the_gateway(start):
    engines = start()
    pids = engines.ready()
    names = [one["name"] for one in httpx.get(f"{engines.url}/health").json()["replicas"]]
    url = f"http://{names[0]}"
    up = start(url)
    up.until_output("Ctrl-C stops everything.")
    assert "replicas" not in up.line("Ready after")
    assert httpx.get(f"{up.url}/v1/models").json()["data"][0]["id"] == "fake"
    up.process.send_signal(signal.SIGINT)
    assert up.wait() == 0
    assert all(map(alive, pids))
    assert httpx.get(f"{url}/health").status_code == 200


def test_an_attached_gateway_is_an_error(start):
    gateway = start()
    gateway.ready()
    up = start(gateway.url)
    assert up.wait() == 2
    assert f"--attach {gateway.url}: is a gateway of Weft; name its engines" in up.output


def test_a_missing_attached_engine_is_an_error(start):
    url = f"http://127.0.0.1:{free_port()}"
    up = start(url)
    assert up.wait() == 2
    assert f"--attach {url}" in up.output


def test_a_gateway_that_cannot_start_stops_the_engines(start):
    up = start(hold=1)
    up.until_output("replica-0 is ready")
    pids = descendants(up.process.pid)
    with socket.create_server(("127.0.0.1", up.port)):
        (up.folder / "1" / "hold").unlink()
        assert up.wait() == 1
    assert "gateway ended with status" in up.output
    assert not any(map(alive, pids))


def test_a_missing_redis_is_an_error_before_any_start(start):
    where = f"127.0.0.1:{free_port()}"
    up = start(WEFT_REDIS_URL=f"redis://:hunter2@{where}/0")
    assert up.wait() == 2
    assert f"weft up: WEFT_REDIS_URL {where}/0: Redis does not answer" in up.output
    assert "hunter2" not in up.output
    assert not list(up.folder.iterdir())


def test_readiness_waits_for_a_redis_that_stops_during_the_start(start, tmp_path):
    redis = RedisServer(tmp_path)
    try:
        up = start(hold=1, WEFT_REDIS_URL=redis.url)
        up.until_output("replica-0 is ready")
        redis.kill()
        (up.folder / "1" / "hold").unlink()
        up.until_output("Starting gateway")
        until(lambda: _answers(up.url), "the gateway does not answer")
        assert httpx.get(f"{up.url}/ready").status_code == 503
        assert "Base URL" not in up.output
        redis.start()
        up.until_output("Base URL")
    finally:
        redis.kill()


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health").status_code == 200
    except httpx.TransportError:
        return False


def test_an_unknown_variable_is_a_warning(start):
    up = start(WEFT_REPLCAS="http://h")
    up.until_output("warning: WEFT_REPLCAS is not a known setting; did you mean WEFT_REPLICAS?")
