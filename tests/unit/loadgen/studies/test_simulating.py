"""Common parts of simulated experiments."""

from __future__ import annotations

import pytest
from weft_bench.studies.simulating import SYSTEMS, Scene, figures, play
from weft_engine.wire import ORDER_NAMES

_SCENE = Scene("bfcl", 6, 4.0, kv_blocks=4000)


@pytest.mark.parametrize("name", SYSTEMS)
def test_every_system_plays_the_same_programs(name: str) -> None:
    found = play(_SCENE, SYSTEMS[name], seed=1)
    base = play(_SCENE, SYSTEMS["vllm"], seed=1)
    assert [(p.id, p.arrival_s, p.output_tokens) for p in found.programs] == [
        (p.id, p.arrival_s, p.output_tokens) for p in base.programs
    ]
    assert SYSTEMS[name].order in ORDER_NAMES


def test_hit_rate_is_zero_without_a_prefix_cache() -> None:
    assert figures(play(_SCENE, SYSTEMS["vllm"], seed=1))["hit_rate"] == 0.0
    assert figures(play(_SCENE, SYSTEMS["vllm-opt"], seed=1))["hit_rate"] > 0.5


def test_all_programs_arrive_at_once_without_a_rate() -> None:
    found = play(Scene("bfcl", 4, 0.0), SYSTEMS["weft"], seed=0)
    assert {program.arrival_s for program in found.programs} == {0.0}
    assert figures(found)["makespan"] == found.end_s > 0.0


def test_latency_percentiles_increase() -> None:
    found = figures(play(_SCENE, SYSTEMS["weft"], seed=2))
    assert found["latency_p50"] <= found["latency_p95"] <= found["latency_p99"]
    assert found["token_latency_p95"] <= found["token_latency_p99"]


def test_steady_figures_need_arrivals_over_time() -> None:
    found = figures(play(_SCENE, SYSTEMS["vllm-opt"], seed=1))
    assert 0.0 <= found["loaded"] <= 1.0
    assert found["steady_latency"] <= found["steady_latency_p95"]
    at_once = figures(play(Scene("bfcl", 4, 0.0), SYSTEMS["vllm-opt"], seed=0))
    assert "steady_latency" not in at_once
