"""Requests that arrive one after the other on simulated engines."""

from __future__ import annotations

import pytest
from weft_bench.workflows.online import arrivals
from weft_bench.workflows.shapes import SHAPES
from weft_bench.workflows.systems import SYSTEMS, Scene, engines, joined

pytest.importorskip("vllm")
pytestmark = pytest.mark.engine


def test_requests_arrive_in_random_order() -> None:
    batch = SHAPES["reflect"](200)
    found = arrivals(batch, 5.0, 1)
    assert found == arrivals(batch, 5.0, 1)
    assert found != sorted(found)
    assert 200 / max(found) == pytest.approx(5.0, rel=0.3)


def test_requests_wait_for_their_arrival() -> None:
    scene = Scene(SHAPES["reflect"](12), engines(), 0, 0.1)
    found = scene.run(SYSTEMS["random"](scene))
    assert found.seconds > max(scene.begins)
    # The engines are idle between requests, so each takes only its own time.
    assert max(found.latencies) < 3 * min(found.latencies)
    assert found.batched < 2


def test_joined_runs_find_the_prefixes_of_others() -> None:
    scene = Scene(SHAPES["reflect"](48), engines(), 0, 4.0)
    ours, alone = (scene.run(joined(scene, join_s)) for join_s in (1000.0, 0.0))
    assert len(ours.latencies) == len(alone.latencies) == 48
    assert ours.hit_rate > alone.hit_rate
    assert ours.fresh_tokens < alone.fresh_tokens
    assert min(ours.shares.values()) > 0.3
