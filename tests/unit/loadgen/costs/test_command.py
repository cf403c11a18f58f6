"""`weft bench fit` without an engine."""

from __future__ import annotations

import json

import pytest
from weft_bench.cli.studies import FitOptions
from weft_bench.costs import command
from weft_bench.costs.command import measure, run
from weft_bench.costs.fit import Measured
from weft_bench.costs.step_probe import Probed, ProbeError
from weft_engine.emulated.engines import find

STEPS = [
    Measured(1, 0, n, n * c, 0, 0.002 + n * 0.001 + n * c * 1e-6) for n, c in ((1, 50), (4, 900))
]
STEPS += [Measured(1, p, 0, 0, p * p / 2, 0.002 + p * 0.0001) for p in (16, 256, 1024)]


async def probed(*_, **__):
    return Probed(STEPS, 0.003)


def test_the_fitted_engine_is_one_that_can_be_simulated(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command, "probe", probed)
    file = tmp_path / "engine.json"
    options = FitOptions(engine="http://e/v1/", slots=5, kv_blocks=70, json_file=str(file))
    assert run(options) == 0
    assert "measured and fitted" in capsys.readouterr().out
    shape = find(str(file))
    assert (shape.slots, shape.kv_blocks, shape.call_s) == (5, 70, 0.003)
    assert shape.cost.prefill_token_s == pytest.approx(0.0001)
    figures = {f["name"]: f["value"] for f in json.loads(file.read_text())["figures"]}
    assert figures["mean_relative_error"] == pytest.approx(0, abs=1e-6)


def test_parallel_calls_that_exceed_the_cache_are_not_measured(monkeypatch):
    asked = []

    async def probe(*_, step_tokens):
        asked.append(step_tokens)
        return Probed(STEPS, 0.003)

    monkeypatch.setattr(command, "probe", probe)
    for kv_blocks in (70, 7000):
        measure(FitOptions(engine="http://e", kv_blocks=kv_blocks, step_tokens=4096))
    assert asked == [70 * 32, 4096]


def test_swap_cost_comes_from_the_other_engine(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "probe", probed)
    asked = []

    async def swap(url, rounds, done):
        asked.append((url, rounds))
        done()
        return 0.00025

    monkeypatch.setattr(command, "probe_swap", swap)
    file = tmp_path / "engine.json"
    options = FitOptions(
        engine="http://e", swap_engine="http://s/v1", rounds=2, json_file=str(file)
    )
    assert run(options) == 0
    assert asked == [("http://s", 2)]
    assert find(str(file)).cost.swapped_block_s == 0.00025


def test_engine_that_cannot_be_measured_is_reported(monkeypatch, capsys):
    async def refuse(*_, **__):
        raise ProbeError("no server is there")

    monkeypatch.setattr(command, "probe", refuse)
    assert run(FitOptions(engine="http://e")) == 2
    assert "no server is there" in capsys.readouterr().err
