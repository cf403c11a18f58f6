"""Systems on simulated engines."""

from __future__ import annotations

import pytest
from weft_bench.workflows.dispatch import Free
from weft_bench.workflows.shapes import SHAPES
from weft_bench.workflows.systems import SYSTEMS, Scene, engines

pytest.importorskip("vllm")
pytestmark = pytest.mark.engine


@pytest.mark.parametrize("system", SYSTEMS)
def test_system_plays_every_call(system: str) -> None:
    scene = Scene(SHAPES["debate-context"](6), engines(), 0)
    found = scene.run(SYSTEMS[system](scene))
    assert found.seconds > 0
    assert 0 < found.hit_rate < 1
    assert sum(found.shares.values()) == pytest.approx(1)


def test_query_wise_is_the_slowest() -> None:
    seconds = {}
    for system in ("query-wise", "operator-wise", "random"):
        scene = Scene(SHAPES["map-reduce"](6), engines(), 0)
        seconds[system] = scene.run(SYSTEMS[system](scene)).seconds
    assert seconds["query-wise"] > 2 * seconds["operator-wise"]
    assert seconds["operator-wise"] > seconds["random"]


def test_calls_that_are_never_sent_are_an_error() -> None:
    class Silent(Free):
        def send(self, state: object, fresh: object) -> tuple[()]:  # type: ignore[override]
            return ()

    scene = Scene(SHAPES["reflect"](2), engines(), 0)
    with pytest.raises(RuntimeError, match="8 calls of 8 were never sent"):
        scene.run(Silent(scene.tasks, scene.names, scene.rng))


def test_plan_gives_a_slow_engine_fewer_calls() -> None:
    scene = Scene(SHAPES["map-reduce"](18), engines(slow=(1.0, 2.0)), 0)
    found = scene.run(SYSTEMS["weft"](scene))
    assert found.shares["replica-0"] == pytest.approx(2 / 3, abs=0.05)
