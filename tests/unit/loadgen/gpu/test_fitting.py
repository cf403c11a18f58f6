"""Fits an engine of the bench: steps on a normal engine, swaps on one with a single slot."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace

import pytest
from weft_bench.cli.gpu import GpuOptions
from weft_bench.costs import command
from weft_bench.gpu import fitting
from weft_bench.gpu.engine import Started
from weft_engine.emulated.engines import find
from weft_engine.emulated.presets import preset


@pytest.fixture
def engines(monkeypatch):
    """The options of started engines and of measurements."""
    found = []

    @contextmanager
    def started(system, options, model, logs, wait_s, *, experiments=False):
        found.append((system, options, experiments))
        yield Started("http://e", "http://g", 1.0, logs / "engine.log")

    async def cache(engine):
        return 5000, 16

    def measure(asked):
        found.append(asked)
        cost = replace(preset("8b-a100").cost, swapped_block_s=0.0)
        return replace(preset("8b-a100"), cost=cost, block_bytes=asked.block_bytes), []

    monkeypatch.setattr(fitting, "started", started)
    monkeypatch.setattr(fitting, "_cache", cache)
    monkeypatch.setattr(command, "measure", measure)
    monkeypatch.setattr(command, "measure_swap", lambda engine, rounds: 0.00025)
    monkeypatch.setattr(command, "show", lambda *_: None)
    monkeypatch.setattr(command, "error", lambda *_: 0.0)
    return found


def fitted(tmp_path, **changed):
    file = tmp_path / "engine.json"
    options = GpuOptions(**{"max_model_len": 4096, "fit_file": str(file), **changed})
    fitting.fit_engine(options, tmp_path / "model", tmp_path, 5.0)
    return find(str(file))


def test_fitted_engine_can_be_simulated_with_swaps(engines, tmp_path):
    shape = fitted(tmp_path, slots=32)
    assert shape.cost.swapped_block_s == 0.00025
    assert shape.block_bytes == 2 * 2**20
    (_, options, future), asked, (alone, few, experiments) = engines
    assert (options.slots, future) == (32, False)
    assert (asked.slots, asked.kv_blocks, asked.block_tokens, asked.context) == (32, 5000, 16, 4096)
    # One slot, one context of KV, experiments enabled, and LRU eviction.
    assert (few.slots, few.kv_blocks, experiments, alone.tags) == (1, 258, True, False)


def test_without_swap_only_steps_are_measured(engines, tmp_path):
    assert fitted(tmp_path, swap_gib=0).cost.swapped_block_s == 0.0
    assert len(engines) == 2
