"""The command line: what it offers, and what it hands on."""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from typer.testing import CliRunner
from weft_gateway.cli import app

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


@pytest.mark.parametrize("taken", ["weft_deploy.local.up"], indirect=True)
def test_up_hands_its_options_on(taken: Taken) -> None:
    arguments = ["up", "--replicas", "3", "--policy", "fcfs", "--port", "1", "--"]
    assert runner.invoke(app, [*arguments, "--max-num-seqs", "4", "--"]).exit_code == 7
    (options,) = taken.got
    assert options["replicas"] == 3
    assert options["policy"] == "fcfs"
    assert options["port"] == 1
    assert options["engine_arguments"] == ("--max-num-seqs", "4", "--")


@pytest.mark.parametrize("taken", ["weft_deploy.local.up"], indirect=True)
def test_up_attaches_engines(taken: Taken) -> None:
    arguments = ["up", "--attach", "http://a", "--attach", "http://b", "--balancer", "least_used"]
    assert runner.invoke(app, arguments).exit_code == 7
    (options,) = taken.got
    assert options["attach"] == ("http://a", "http://b")
    assert options["balancer"] == "least_used"


@pytest.mark.parametrize("taken", ["weft_deploy.local.up"], indirect=True)
@pytest.mark.parametrize(
    ("more", "named"),
    [
        (["--policy", "plas"], "--policy"),
        (["--replicas", "2"], "--replicas"),
        (["--model", "m"], "--model"),
        (["--", "--max-num-seqs", "4"], "--max-num-seqs"),
    ],
)
def test_what_would_not_reach_attached_engines_is_refused(
    more: list[str], named: str, taken: Taken
) -> None:
    result = runner.invoke(app, ["up", "--attach", "http://a", *more])
    assert (result.exit_code, taken.got) == (2, [])
    assert named in result.output
    assert "--attach" in result.output


@pytest.mark.parametrize("taken", ["weft_deploy.local.up"], indirect=True)
@pytest.mark.parametrize("before", [["gibberish"], ["--replicas", "1", "stray", "words"]])
@pytest.mark.parametrize("after", [[], ["--", "--block-size", "32"]])
def test_up_takes_no_stray_words(before: list[str], after: list[str], taken: Taken) -> None:
    result = runner.invoke(app, ["up", *before, *after])
    assert (result.exit_code, taken.got) == (2, [])
    assert "unexpected extra argument" in result.output


@pytest.mark.parametrize("taken", ["weft_bench.simulated.command"], indirect=True)
def test_a_simulated_replica_gets_its_options(taken: Taken) -> None:
    arguments = ["replica", "--simulated", "--preset", "70b-h100", "--slots", "4"]
    assert runner.invoke(app, [*arguments, "--speed-up", "2.5"]).exit_code == 7
    (options,) = taken.got
    assert (options["preset"], options["slots"], options["speed_up"]) == ("70b-h100", 4, 2.5)
    assert (options["model"], options["scheduler"]) == ("simulated", "plain")


@pytest.mark.parametrize("taken", ["weft_engine.launch"], indirect=True)
def test_a_replica_hands_what_it_does_not_know_to_vllm(taken: Taken) -> None:
    arguments = ["replica", "--model", "m", "--policy", "fcfs", "--max-model-len", "64"]
    assert runner.invoke(app, arguments).exit_code == 7
    (options,) = taken.got
    assert options["model"] == "m"
    assert options["extra"] == ["--max-model-len", "64"]


@pytest.mark.parametrize("taken", ["weft_bench.replay.command"], indirect=True)
def test_a_replay_hands_its_options_on(taken: Taken) -> None:
    arguments = ["bench", "replay", "--policy", "fcfs, plas,", "--json", "f", "--seed", "3"]
    assert runner.invoke(app, arguments).exit_code == 7
    (options,) = taken.got
    assert options["policies"] == ("fcfs", "plas")
    assert (options["json_file"], options["seed"]) == ("f", 3)


@pytest.mark.parametrize("taken", ["weft_bench.replay.command"], indirect=True)
@pytest.mark.parametrize(
    ("policy", "told"),
    [("zzz", "zzz"), ("plas,zzz", "zzz"), ("", "nothing is named"), (" , ", "nothing is named")],
)
def test_a_replay_of_unknown_orders_starts_nothing(policy: str, told: str, taken: Taken) -> None:
    result = runner.invoke(app, ["bench", "replay", "--policy", policy])
    assert (result.exit_code, taken.got) == (2, [])
    assert told in result.output
    assert "--policy" in result.output


@pytest.mark.parametrize("taken", ["weft_bench.replay.command"], indirect=True)
@pytest.mark.parametrize(
    "more",
    [
        ["--replicas", "2"],
        ["--slots", "4"],
        ["--kv-blocks", "1"],
        ["--max-model-len", "1"],
        ["--swap-gib", "0"],
        ["--first-quantum", "0.1"],
    ],
    ids=lambda more: str(more[0]),
)
def test_a_replay_on_a_running_gateway_refuses_what_only_new_engines_can_take(
    more: list[str], taken: Taken
) -> None:
    result = runner.invoke(app, ["bench", "replay", "--base-url", "http://h", *more])
    assert (result.exit_code, taken.got) == (2, [])
    assert more[0] in result.output
    assert "--base-url" in result.output


@pytest.mark.parametrize("taken", ["weft_bench.overhead.command"], indirect=True)
@pytest.mark.parametrize("value", ["abc", "0", "1,-2", "", "1,,x", "1.5"])
def test_overhead_wants_numbers_of_calls(value: str, taken: Taken) -> None:
    result = runner.invoke(app, ["bench", "overhead", "--concurrency", value])
    assert (result.exit_code, taken.got) == (2, [])
    assert "--concurrency" in result.output


BENCHES = [
    ("weft_bench.replay.command", "replay", "--json"),
    ("weft_bench.replay.command", "replay", "--plot"),
    ("weft_bench.overhead.command", "overhead", "--json"),
    ("weft_bench.swap.command", "swap", "--json"),
    ("weft_bench.scheduler.command", "scheduler", "--json"),
    ("weft_bench.workload_command", "workload", "--out"),
    ("weft_bench.workload_command", "workload", "--json"),
]


@pytest.mark.parametrize(
    ("taken", "bench", "kind"),
    [
        ("weft_bench.replay.command", "replay", "weekly"),
        ("weft_bench.workload_command", "workload", "weekly"),
        ("weft_bench.workload_command", "workload", "recorded"),
    ],
    indirect=["taken"],
)
def test_arrivals_that_are_not_known_start_nothing(taken: Taken, bench: str, kind: str) -> None:
    result = runner.invoke(app, ["bench", bench, "--arrivals", kind])
    assert (result.exit_code, taken.got) == (2, [])
    assert kind in result.output
    assert "stepped" in result.output


@pytest.mark.parametrize("taken", ["weft_bench.workload_command"], indirect=True)
def test_a_workload_hands_its_options_on(taken: Taken) -> None:
    line = ["bench", "workload", "--name", "bfcl", "--arrivals", "bursty", "--describe", "a,b"]
    assert runner.invoke(app, line).exit_code == 7
    (options,) = taken.got
    assert (options["name"], options["arrivals"]) == ("bfcl", "bursty")
    assert options["describe"] == ("a", "b")


@pytest.mark.parametrize(("taken", "bench", "option"), BENCHES, indirect=["taken"])
@pytest.mark.parametrize("kind", ["folder", "below a file"])
def test_a_file_that_cannot_be_written_is_told_before_anything_starts(
    taken: Taken, bench: str, option: str, kind: str, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    target = tmp_path if kind == "folder" else tmp_path / "file" / "x"
    result = runner.invoke(app, ["bench", bench, option, str(target)])
    assert (result.exit_code, taken.got) == (2, [])
    assert option in result.output


@pytest.mark.parametrize(("taken", "bench", "option"), BENCHES, indirect=["taken"])
def test_a_file_that_can_be_written_is_left_as_it_was(
    taken: Taken, bench: str, option: str, tmp_path: Path
) -> None:
    old, new = tmp_path / "old", tmp_path / "a" / "new"
    old.write_text("kept")
    for target in (old, new):
        assert runner.invoke(app, ["bench", bench, option, str(target)]).exit_code == 7
    assert len(taken.got) == 2
    assert old.read_text() == "kept"
    assert not new.exists()


@pytest.mark.parametrize("taken", ["weft_bench.overhead.command"], indirect=True)
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
        ["replica", "--model", "m", "--speed-up", "2"],
        ["replica", "--simulated", "--max-model-len", "64"],
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
