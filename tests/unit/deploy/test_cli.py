"""`weft up`: its options and the arguments for the engines."""

from __future__ import annotations

import pytest
from support.recorder import Recorder
from typer.testing import CliRunner
from weft_deploy.cli import up

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
@pytest.mark.parametrize(
    ("more", "named"),
    [
        (["--policy", "plas"], "--policy"),
        (["--replicas", "2"], "--replicas"),
        (["--model", "m"], "--model"),
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
