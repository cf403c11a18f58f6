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
