"""`weft up`: its options and the arguments for the engines."""

from __future__ import annotations

import pytest
from support.recorder import Recorder
from typer.testing import CliRunner
from weft_deploy.cli import up
from weft_deploy.local.plan import Emulated

runner = CliRunner()


@pytest.mark.parametrize("recorder", ["weft_deploy.local.up"], indirect=True)
def test_up_passes_its_options_on(recorder: Recorder) -> None:
    arguments = ["--replicas", "3", "--policy", "fcfs", "--port", "1", "--"]
    assert runner.invoke(up, [*arguments, "--max-num-seqs", "4", "--"]).exit_code == 7
    (options,) = recorder.calls
    assert options["replicas"] == 3
    assert options["policy"] == "fcfs"
    assert options["port"] == 1
    assert options["engine_arguments"] == ("--max-num-seqs", "4", "--")


@pytest.mark.parametrize("recorder", ["weft_deploy.local.up"], indirect=True)
def test_up_attaches_engines(recorder: Recorder) -> None:
    arguments = ["--attach", "http://a", "--attach", "http://b", "--balancer", "least_used"]
    assert runner.invoke(up, arguments).exit_code == 7
    (options,) = recorder.calls
    assert options["attach"] == ("http://a", "http://b")
    assert options["balancer"] == "least_used"


@pytest.mark.parametrize("recorder", ["weft_deploy.local.up"], indirect=True)
def test_up_starts_emulated_engines(recorder: Recorder) -> None:
    arguments = ["--emulated", "--preset", "8b-a100,8b-l40", "--dilate", "2"]
    assert runner.invoke(up, arguments).exit_code == 7
    assert runner.invoke(up, []).exit_code == 7
    emulated, real = recorder.calls
    assert emulated["emulated"] == Emulated("8b-a100,8b-l40", 2.0, "weft")
    assert real["emulated"] is None


@pytest.mark.parametrize("recorder", ["weft_deploy.local.up"], indirect=True)
@pytest.mark.parametrize("option", ["--preset", "--dilate", "--scheduler"])
def test_options_of_emulated_engines_need_them(option: str, recorder: Recorder) -> None:
    result = runner.invoke(up, [option, "2"])
    assert (result.exit_code, recorder.calls) == (2, [])
    assert option in result.output
    assert "--emulated" in result.output


@pytest.mark.parametrize("recorder", ["weft_deploy.local.up"], indirect=True)
@pytest.mark.parametrize(
    ("more", "named"),
    [
        (["--policy", "plas"], "--policy"),
        (["--replicas", "2"], "--replicas"),
        (["--model", "m"], "--model"),
        (["--emulated"], "--emulated"),
        (["--", "--max-num-seqs", "4"], "--max-num-seqs"),
    ],
)
def test_options_for_started_engines_are_refused_with_attach(
    more: list[str], named: str, recorder: Recorder
) -> None:
    result = runner.invoke(up, ["--attach", "http://a", *more])
    assert (result.exit_code, recorder.calls) == (2, [])
    assert named in result.output
    assert "--attach" in result.output


@pytest.mark.parametrize("recorder", ["weft_deploy.local.up"], indirect=True)
@pytest.mark.parametrize("before", [["gibberish"], ["--replicas", "1", "stray", "words"]])
@pytest.mark.parametrize("after", [[], ["--", "--block-size", "32"]])
def test_up_refuses_extra_words(before: list[str], after: list[str], recorder: Recorder) -> None:
    result = runner.invoke(up, [*before, *after])
    assert (result.exit_code, recorder.calls) == (2, [])
    assert "unexpected extra argument" in result.output


@pytest.mark.parametrize("arguments", [["--replicas", "0"], ["--port", "70000"]], ids=" ".join)
def test_wrong_options_are_refused(arguments: list[str]) -> None:
    assert runner.invoke(up, arguments).exit_code == 2
