"""The command line: what it offers, and what it hands on."""

from __future__ import annotations

import socket
import sys
from types import ModuleType
from typing import Any

import pytest
from typer.testing import CliRunner

from gateway.cli import app

runner = CliRunner()


class Taken(ModuleType):
    """Stands in for a module that a command imports, and keeps what it was run with."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.got: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        if name == "run":
            return lambda *given, **named: self.got.append(given[0] if given else named) or 7
        return lambda **options: options


@pytest.fixture
def taken(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Taken:
    module = Taken(request.param)
    monkeypatch.setitem(sys.modules, request.param, module)
    return module


def test_every_command_is_explained() -> None:
    shown = runner.invoke(app, ["--help"]).output
    for command in ("up", "serve", "replica", "bench"):
        assert command in shown
    for command in ("replay", "overhead"):
        assert command in runner.invoke(app, ["bench", "--help"]).output


@pytest.mark.parametrize("taken", ["deploy.local.up"], indirect=True)
def test_up_hands_its_options_on(taken: Taken) -> None:
    arguments = ["up", "--replicas", "3", "--policy", "fcfs", "--attach", "http://a", "--port", "1"]
    assert runner.invoke(app, arguments).exit_code == 7
    (options,) = taken.got
    assert options["replicas"] == 3
    assert options["policy"] == "fcfs"
    assert options["attach"] == ("http://a",)
    assert options["port"] == 1


@pytest.mark.parametrize("taken", ["engine_patches.launch"], indirect=True)
def test_a_replica_hands_what_it_does_not_know_to_vllm(taken: Taken) -> None:
    arguments = ["replica", "--model", "m", "--policy", "fcfs", "--max-model-len", "64"]
    assert runner.invoke(app, arguments).exit_code == 7
    (options,) = taken.got
    assert options["model"] == "m"
    assert options["extra"] == ["--max-model-len", "64"]


@pytest.mark.parametrize("taken", ["loadgen.replay_command"], indirect=True)
def test_a_replay_hands_its_options_on(taken: Taken) -> None:
    arguments = ["bench", "replay", "--policy", "fcfs, plas,", "--json", "f", "--seed", "3"]
    assert runner.invoke(app, arguments).exit_code == 7
    (options,) = taken.got
    assert options["policies"] == ("fcfs", "plas")
    assert (options["json_file"], options["seed"]) == ("f", 3)


@pytest.mark.parametrize("taken", ["loadgen.overhead_command"], indirect=True)
def test_overhead_can_be_measured_without_peers(taken: Taken) -> None:
    arguments = ["bench", "overhead", "--peers", "none", "--concurrency", "1,64"]
    assert runner.invoke(app, arguments).exit_code == 7
    (options,) = taken.got
    assert options["peers"] == ()
    assert options["concurrency"] == (1, 64)


def test_serve_names_a_wrong_setting_and_its_variable() -> None:
    result = runner.invoke(app, ["serve", "--redis", "http://redis"])
    assert result.exit_code == 2
    assert "redis_url (WEFT_REDIS_URL)" in result.output


@pytest.mark.parametrize(
    "arguments",
    [
        ["up", "--replicas", "0"],
        ["up", "--port", "70000"],
        ["replica"],
        ["bench", "replay", "--rate", "0"],
        ["bench", "overhead", "--requests", "1"],
        ["fly"],
    ],
    ids=" ".join,
)
def test_wrong_use_is_refused(arguments: list[str]) -> None:
    assert runner.invoke(app, arguments).exit_code == 2


def test_serve_says_that_its_port_is_taken() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        result = runner.invoke(app, ["serve", "--port", str(holder.getsockname()[1])])
    assert result.exit_code == 1
