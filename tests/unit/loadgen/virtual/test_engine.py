"""Construction of schedulers as in an engine."""

from __future__ import annotations

import pytest
from support.simulated import engine
from weft_bench.virtual.engine import EngineSettings, build_scheduler

pytestmark = pytest.mark.engine


def test_scheduler_has_the_requested_shape():
    scheduler = build_scheduler(engine(slots=5, step_tokens=300), EngineSettings("mlfq"))
    assert scheduler.calls.order.name == "mlfq"
    assert (scheduler.max_num_running_reqs, scheduler.max_num_scheduled_tokens) == (5, 300)
    assert scheduler.kv_cache_manager.block_pool.num_gpu_blocks == 400
    assert scheduler.prefix_cached()
    assert scheduler.violations() == []
    assert not build_scheduler(engine(), EngineSettings(prefix_cache=False)).prefix_cached()


def test_the_swap_buffer_has_slots_of_whole_blocks():
    shape = engine()
    scheduler = build_scheduler(shape, EngineSettings(swap_gib=1.0))
    assert scheduler.state()["swap"]["slots"] == 2**30 // shape.block_bytes


def test_settings_are_those_of_production():
    with pytest.raises(ValueError, match="unknown policy"):
        build_scheduler(engine(), EngineSettings("guess"))
    with pytest.raises(ValueError, match="max_displacements"):
        build_scheduler(engine(), EngineSettings(plugin={"max_displacements": -1}))
    scheduler = build_scheduler(engine(), EngineSettings(plugin={"max_displacements": 0}))
    assert scheduler.settings.max_displacements == 0
