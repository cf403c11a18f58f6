"""What `weft bench truth` compares; the comparison itself needs a real engine."""

from __future__ import annotations

import json

import pytest

from loadgen import truth_command
from loadgen.sim.presets import preset
from loadgen.truth_command import (
    TruthOptions,
    fitted_slowdown,
    same_order,
    slower,
    workload,
)


def test_the_workload_has_exact_lengths_that_fit_the_demo_model():
    programs = workload(1, 20)
    assert programs == workload(1, 20)
    assert programs != workload(2, 20)
    for program in programs:
        for call in program.calls:
            assert call.prompt_tokens == sum(part.tokens for part in call.call.parts)
            assert call.prompt_tokens + call.max_tokens < 4096
            # Answers do not return: the next prompt has what was recorded.
            assert call.call.answer == ""


@pytest.mark.parametrize(
    ("simulated", "alike"),
    [
        ({"a": 11.0, "b": 5.0, "c": 5.1}, True),
        ({"a": 11.0, "b": 5.1, "c": 5.0}, True),
        ({"a": 5.0, "b": 11.0, "c": 5.1}, False),
    ],
)
def test_orders_that_are_apart_must_stand_alike(simulated, alike):
    real = {"a": 10.0, "b": 4.9, "c": 5.0}
    assert same_order(real, simulated) is alike


@pytest.mark.parametrize(("off", "status"), [(1.1, 0), (1.2, 1), (0.8, 1)])
def test_more_than_fifteen_percent_off_is_not_true_to_life(tmp_path, capsys, off, status):
    file = tmp_path / "truth.json"
    options = TruthOptions(json_file=str(file))
    real = {"fcfs": 4.0, "plas": 2.0}
    simulated = {name: off * value for name, value in real.items()}
    assert truth_command._report(options, real, simulated) == status
    text = capsys.readouterr().out
    assert "real, on this machine" in text
    assert "simulated" in text
    names = {f["name"] for f in json.loads(file.read_text())["figures"]}
    assert {"real/fcfs/response_mean", "simulated/fcfs/response_mean"} <= names


def test_the_slowdown_is_the_one_that_explains_the_calibration():
    assert fitted_slowdown(lambda factor: 2 * factor**1.5, 2 * 1.7**1.5) == pytest.approx(
        1.7, rel=0.01
    )


def test_everything_is_slower_by_the_same():
    shape = slower(preset("8b-a100"), 2.0)
    assert shape.cost.step(0, 1, 0) == pytest.approx(
        2 * preset("8b-a100").cost.step(0, 1, 0), rel=1e-3
    )
    assert (shape.slots, shape.kv_blocks) == (256, preset("8b-a100").kv_blocks)
