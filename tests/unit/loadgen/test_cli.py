"""`weft bench`: its commands, their options and the checks before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer.main
from support.recorder import Recorder
from typer.testing import CliRunner
from weft_bench.cli import bench

runner = CliRunner()


def test_there_are_nine_commands() -> None:
    command = typer.main.get_command(bench)
    assert set(command.commands) == {  # type: ignore[attr-defined]
        "agents", "study", "overhead", "scheduler", "swap", "lineage", "overlap", "workload", "fit"
    }  # fmt: skip


@pytest.mark.parametrize("recorder", ["weft_bench.agents.command"], indirect=True)
@pytest.mark.parametrize(
    ("policy", "message"),
    [("zzz", "zzz"), ("plas,zzz", "zzz"), ("", "the list is empty"), (" , ", "the list is empty")],
)
def test_unknown_orders_start_nothing(policy: str, message: str, recorder: Recorder) -> None:
    result = runner.invoke(bench, ["agents", "--data", "x", "--orders", policy])
    assert (result.exit_code, recorder.calls) == (2, [])
    assert message in result.output
    assert "--orders" in result.output


@pytest.mark.parametrize("recorder", ["weft_bench.overlap.command"], indirect=True)
@pytest.mark.parametrize(
    "more",
    [["--replicas", "2"], ["--kv-blocks", "1"], ["--max-model-len", "8192"]],
    ids=lambda more: str(more[0]),
)
def test_a_running_gateway_excludes_the_options_of_new_engines(
    more: list[str], recorder: Recorder
) -> None:
    result = runner.invoke(bench, ["overlap", "--base-url", "http://h", *more])
    assert (result.exit_code, recorder.calls) == (2, [])
    assert more[0] in result.output
    assert "--base-url" in result.output


@pytest.mark.parametrize("recorder", ["weft_bench.agents.command"], indirect=True)
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ([], {"times": (0.5, 1.0, 2.0, 4.0, 8.0), "seeds": 6, "calls": 24, "parallel": 0}),
        (
            ["--engines", "emulated", "--times", "8,2", "--host", "0,4"],
            {"times": (2.0, 8.0), "seeds": 2, "calls": 12, "parallel": 1, "host": (0.0, 4.0)},
        ),
        (
            ["--engines", "gpu", "--slots", "8", "--", "--enforce-eager"],
            {"replicas": 1, "times": (2.0,), "slots": 8, "more": ("--enforce-eager",)},
        ),
        (["--rows", "--engines", "real"], {"replicas": 2, "kv_blocks": 500, "slots": 4}),
        (["--rows", "--engines", "emulated"], {"replicas": 3, "kv_blocks": 3000, "slots": 4}),
    ],
)
def test_agents_has_sizes_for_its_engines(
    line: list[str], expected: dict[str, object], recorder: Recorder
) -> None:
    assert runner.invoke(bench, ["agents", "--data", "x", *line]).exit_code == 7
    (options,) = recorder.calls
    assert {name: getattr(options, name) for name in expected} == expected


@pytest.mark.parametrize("recorder", ["weft_bench.agents.command"], indirect=True)
@pytest.mark.parametrize(
    ("line", "option"),
    [
        (["--engines", "gpu", "--dilate", "2"], "--dilate"),
        (["--rows", "--engines", "emulated", "--orders", "fcfs"], "--orders"),
        (["--rows"], "--rows"),
        (["--engines", "real"], "--rows"),
        (["--engines", "emulated", "--chats", "2"], "--chats"),
        (["--times", "0,1"], "--times"),
        (["--host", "-1"], "--host"),
        (["--pages", "3"], "--pages"),
    ],
)
def test_agents_refuses_options_without_an_effect(
    line: list[str], option: str, recorder: Recorder
) -> None:
    result = runner.invoke(bench, ["agents", "--data", "x", *line])
    assert (result.exit_code, recorder.calls) == (2, [])
    assert option in result.output


@pytest.mark.parametrize("recorder", ["weft_bench.overhead.command"], indirect=True)
@pytest.mark.parametrize("value", ["abc", "0", "1,-2", "", "1,,x", "1.5"])
def test_overhead_requires_numbers_of_calls(value: str, recorder: Recorder) -> None:
    result = runner.invoke(bench, ["overhead", "--concurrency", value])
    assert (result.exit_code, recorder.calls) == (2, [])
    assert "--concurrency" in result.output


BENCHES = [
    ("weft_bench.overhead.command", "overhead", "--json"),
    ("weft_bench.micro.swap.command", "swap", "--json"),
    ("weft_bench.micro.scheduler.command", "scheduler", "--json"),
    ("weft_bench.workloads.command", "workload", "--json"),
]


@pytest.mark.parametrize(
    ("recorder", "command", "kind"),
    [
        ("weft_bench.workloads.command", "workload", "weekly"),
    ],
    indirect=["recorder"],
)
def test_unknown_arrivals_are_rejected(recorder: Recorder, command: str, kind: str) -> None:
    result = runner.invoke(bench, [command, "--arrivals", kind])
    assert (result.exit_code, recorder.calls) == (2, [])
    assert kind in result.output
    assert "stepped" in result.output


@pytest.mark.parametrize("recorder", ["weft_bench.workloads.command"], indirect=True)
def test_workload_receives_its_options(recorder: Recorder) -> None:
    line = ["workload", "--arrivals", "bursty", "--describe", "a,b"]
    assert runner.invoke(bench, line).exit_code == 7
    (options,) = recorder.calls
    assert options.arrivals == "bursty"
    assert options.describe == ("a", "b")


@pytest.mark.parametrize(("recorder", "command", "option"), BENCHES, indirect=["recorder"])
@pytest.mark.parametrize("kind", ["folder", "below a file"])
def test_unwritable_file_is_reported_before_anything_starts(
    recorder: Recorder, command: str, option: str, kind: str, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    target = tmp_path if kind == "folder" else tmp_path / "file" / "x"
    result = runner.invoke(bench, [command, option, str(target)])
    assert (result.exit_code, recorder.calls) == (2, [])
    assert option in result.output


@pytest.mark.parametrize(("recorder", "command", "option"), BENCHES, indirect=["recorder"])
def test_writable_file_is_unchanged_by_the_check(
    recorder: Recorder, command: str, option: str, tmp_path: Path
) -> None:
    old, new = tmp_path / "old", tmp_path / "a" / "new"
    old.write_text("kept")
    for target in (old, new):
        assert runner.invoke(bench, [command, option, str(target)]).exit_code == 7
    assert len(recorder.calls) == 2
    assert old.read_text() == "kept"
    assert not new.exists()


@pytest.mark.parametrize("recorder", ["weft_bench.overhead.command"], indirect=True)
def test_overhead_by_the_size_of_bodies(recorder: Recorder) -> None:
    assert runner.invoke(bench, ["overhead", "--bodies", "2k,2M", "--growing"]).exit_code == 7
    (options,) = recorder.calls
    assert options.bodies == (2_000, 2_000_000)
    for wrong in (["--bodies", "2x"], ["--growing"], ["--bodies", "2k", "--session"]):
        assert runner.invoke(bench, ["overhead", *wrong]).exit_code == 2


@pytest.mark.parametrize("recorder", ["weft_bench.overhead.command"], indirect=True)
def test_overhead_can_be_measured_without_peers(recorder: Recorder) -> None:
    arguments = ["overhead", "--peers", "none", "--concurrency", "1,64"]
    assert runner.invoke(bench, arguments).exit_code == 7
    (options,) = recorder.calls
    assert options.peers == ()
    assert options.concurrency == (1, 64)


@pytest.mark.parametrize(
    "arguments",
    [["overlap", "--rate", "-1"], ["overhead", "--requests", "1"], ["fly"]],
    ids=" ".join,
)
def test_wrong_options_are_refused(arguments: list[str]) -> None:
    assert runner.invoke(bench, arguments).exit_code == 2
