"""The comparison of `weft bench truth`, without a real engine."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from weft_bench.cli.simulator import TruthOptions
from weft_bench.costs.presets import preset
from weft_bench.truth import command
from weft_bench.truth.command import fitted_slowdown, in_turn, medians, same_order, slower


@pytest.mark.parametrize(
    ("simulated", "alike"),
    [
        ({"a": 11.0, "b": 5.0, "c": 5.1}, True),
        ({"a": 11.0, "b": 5.1, "c": 5.0}, True),
        ({"a": 5.0, "b": 11.0, "c": 5.1}, False),
    ],
)
def test_distinct_orders_must_rank_the_same(simulated, alike):
    real = {"a": 10.0, "b": 4.9, "c": 5.0}
    assert same_order(real, simulated) is alike


@pytest.mark.parametrize(("off", "status"), [(1.1, 0), (1.2, 1), (0.8, 1)])
def test_deviation_above_fifteen_percent_fails(tmp_path, capsys, off, status):
    file = tmp_path / "truth.json"
    options = TruthOptions(json_file=str(file))
    real = {"fcfs": 4.0, "plas": 2.0}
    simulated = {name: off * value for name, value in real.items()}
    # One odd round has little effect.
    odd = {name: 9 * value for name, value in real.items()}
    assert command._report(options, [real, odd, real], [simulated] * 3) == status
    text = capsys.readouterr().out
    assert "real, here" in text
    assert "simulated" in text
    names = {f["name"] for f in json.loads(file.read_text())["figures"]}
    assert {"real/fcfs/response_mean", "simulated/fcfs/response_mean"} <= names


def test_slowdown_reproduces_the_calibration():
    assert fitted_slowdown(lambda factor: 2 * factor**1.5, 2 * 1.7**1.5) == pytest.approx(
        1.7, rel=0.01
    )


def test_all_costs_are_slower_by_the_same_factor():
    shape = slower(preset("8b-a100"), 2.0)
    assert shape.cost.step(0, 1, 0) == pytest.approx(
        2 * preset("8b-a100").cost.step(0, 1, 0), rel=1e-3
    )
    assert (shape.slots, shape.kv_blocks) == (256, preset("8b-a100").kv_blocks)


def test_each_order_is_first_in_a_round_and_the_median_counts():
    rounds = [in_turn(["a", "b", "c"], number) for number in range(4)]
    assert rounds == [["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"], ["a", "b", "c"]]
    assert medians([{"a": 3.0}, {"a": 90.0}, {"a": 2.0}]) == {"a": 3.0}


@pytest.mark.engine
def test_each_order_is_simulated_at_the_speed_of_its_calibrations(monkeypatch):
    """Nine plays of three orders alternate with ten calibrations."""
    speeds = []

    def simulate(policy, shape, scene):
        if scene == "compared":
            speeds.append((policy, shape.call_s))
        return shape.call_s

    monkeypatch.setattr(command, "_simulate", simulate)
    options = TruthOptions(policies=("a", "b", "c"))
    shape = replace(preset("8b-a100"), call_s=1.0)
    calibrated = [1.0, 1.0, 4.0, 1.0, 1.0, 1.0, 1.0, 4.0, 4.0, 4.0]
    found = command._simulate_rounds(options, shape, calibrated, "calibration", "compared")
    assert [name for name, _ in speeds] == [*"abc", *"bca", *"cab"]
    expected = [1, 2, 2, 1, 1, 1, 2, 4, 4]
    assert [speed for _, speed in speeds] == pytest.approx(expected, rel=0.01)
    assert found[1]["c"] == speeds[4][1]
