"""`weft replica`: its options and the arguments for vLLM."""

from __future__ import annotations

import pytest
from support.recorder import Recorder
from typer.testing import CliRunner
from weft_engine.cli import replica

runner = CliRunner()


@pytest.mark.parametrize("recorder", ["weft_engine.launch"], indirect=True)
def test_vllm_gets_unknown_options(recorder: Recorder) -> None:
    arguments = ["--model", "m", "--policy", "fcfs", "--max-model-len", "64"]
    assert runner.invoke(replica, arguments).exit_code == 7
    (options,) = recorder.calls
    assert options["model"] == "m"
    assert options["extra"] == ["--max-model-len", "64"]


@pytest.mark.parametrize("recorder", ["weft_engine.launch"], indirect=True)
def test_a_replica_needs_a_model(recorder: Recorder) -> None:
    result = runner.invoke(replica, [])
    assert (result.exit_code, recorder.calls) == (2, [])
    assert "--model" in result.output


@pytest.mark.parametrize("recorder", ["weft_engine.emulated.launch"], indirect=True)
def test_an_emulated_replica_needs_no_model(recorder: Recorder) -> None:
    arguments = ["--emulated", "--preset", "8b-l40", "--dilate", "2", "--max-num-seqs", "4"]
    assert runner.invoke(replica, arguments).exit_code == 7
    (options,) = recorder.calls
    assert (options["model"], options["preset"], options["dilate"]) == ("", "8b-l40", 2.0)
    assert (options["scheduler"], options["extra"]) == ("weft", ["--max-num-seqs", "4"])


@pytest.mark.parametrize("recorder", ["weft_engine.launch"], indirect=True)
@pytest.mark.parametrize("option", ["--preset", "--dilate", "--scheduler"])
def test_options_of_emulated_engines_need_them(option: str, recorder: Recorder) -> None:
    result = runner.invoke(replica, ["--model", "m", option, "2"])
    assert (result.exit_code, recorder.calls) == (2, [])
    assert option in result.output
    assert "--emulated" in result.output
