"""Systems on simulated engines."""

from __future__ import annotations

from dataclasses import replace

import pytest
from weft_bench.planner.plan import predicted_plan
from weft_bench.planner.problem import operations
from weft_bench.planner.radix import build_tree
from weft_bench.workflows.bound import least_seconds
from weft_bench.workflows.dispatch import Free, Planned, Supersteps
from weft_bench.workflows.parts import batch_for, dispatcher
from weft_bench.workflows.shapes import SHAPES
from weft_bench.workflows.systems import SYSTEMS, Scene, engines, follow

pytest.importorskip("vllm")
pytestmark = pytest.mark.engine


@pytest.mark.parametrize("system", SYSTEMS)
def test_system_plays_every_call(system: str) -> None:
    scene = Scene(SHAPES["debate-context"](6), engines(), 0)
    found = scene.run(SYSTEMS[system](scene))
    assert found.seconds >= least_seconds(scene.tasks, scene.shapes)
    assert 0 < found.hit_rate < 1
    assert sum(found.shares.values()) == pytest.approx(1)


def test_no_schedule_is_faster_than_the_bound() -> None:
    scene = Scene(SHAPES["reflect"](72), engines(slow=(1.0, 2.0)), 0)
    least = least_seconds(scene.tasks, scene.shapes)
    assert least < scene.run(SYSTEMS["weft run"](scene)).seconds < 1.15 * least
    # An engine of half the speed is half an engine.
    equal = least_seconds(scene.tasks, engines())
    assert least == pytest.approx(equal * 2 / 1.5)


def test_engines_that_are_good_at_different_work_have_no_bound() -> None:
    scene = Scene(SHAPES["reflect"](2), engines(), 0)
    first, second = scene.shapes
    prefill = replace(second, cost=replace(second.cost, prefill_token_s=1.0))
    with pytest.raises(ValueError, match="not proportional"):
        least_seconds(scene.tasks, [first, prefill])


def test_parrot_uses_the_other_engine_once_the_slots_of_one_are_full() -> None:
    scene = Scene(SHAPES["debate"](2), engines(), 0)
    # All calls of a debate begin with one text.
    few = scene.run(SYSTEMS["parrot"](scene))
    assert sorted(few.shares.values())[0] == 0
    many = Scene(SHAPES["debate"](40), engines(), 0)
    assert min(many.run(SYSTEMS["parrot"](many)).shares.values()) > 0.2


def test_langgraph_begins_a_step_of_a_row_when_the_last_one_has_ended() -> None:
    scene = Scene(SHAPES["trading"](1), engines(), 0)
    steps: list[int] = []
    depth: list[int] = []
    for task in scene.tasks:
        depth.append(1 + max((depth[need] for need in task.needs), default=-1))

    class Noted(Supersteps):
        def send(self, state, fresh):  # type: ignore[no-untyped-def]
            for number, name in super().send(state, fresh):
                steps.append(depth[number])
                yield number, name

    scene.run(Noted(scene.tasks, scene.names, scene.rng))
    assert steps == sorted(steps)
    assert len(steps) == 88


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


@pytest.mark.parametrize(
    "part",
    [
        "weft, even slices", "weft, no rows", "weft, no order", "weft, no window",
        "weft, prefixes first", "weft run, no merging", "weft run, no prompt cache",
        "weft run, no rewrites", "weft run, no groups", "weft run, no sharing",
        "random, rewrites", "longest prefix, rewrites",
    ],
)  # fmt: skip
def test_system_with_a_change_plays_every_call(part: str) -> None:
    batch = batch_for(SHAPES["map-reduce"](6), part)
    assert len(batch.calls) == (15 if part.endswith(("no merging", "no rewrites")) else 8)
    scene = Scene(batch, engines(slow=(1.0, 2.0)), 0)
    assert scene.run(dispatcher(scene, part)).seconds > 0


def test_engine_without_calls_gets_those_of_the_other_one() -> None:
    """All turns are on one engine, whose window is smaller than the calls."""
    found = {}
    equal = {"replica-0": 1.0, "replica-1": 1.0}
    for name, speeds in (
        ("alone", None),
        ("equal", equal),
        ("slow", equal | {"replica-1": 0.01}),
    ):
        scene = Scene(SHAPES["map-reduce"](6), engines(), 0)
        windows = dict.fromkeys(scene.names, 4)
        turns = Planned(
            scene.tasks, windows, lambda call, row: ("replica-0", 100 * row + call), speeds
        )
        found[name] = scene.run(turns)
    assert found["alone"].shares["replica-1"] == found["slow"].shares["replica-1"] == 0
    assert found["equal"].shares["replica-1"] > 0.3
    assert found["equal"].seconds < found["alone"].seconds


def test_prefixes_that_are_sent_first_are_not_computed_again() -> None:
    fresh = {}
    for system in ("random", "kvflow"):
        scene = Scene(SHAPES["map-reduce"](6), engines(), 0)
        fresh[system] = scene.run(SYSTEMS[system](scene)).fresh_tokens
    # Each engine computes the prefixes once in both, and the last block of a prefix twice.
    assert fresh["kvflow"] == pytest.approx(fresh["random"], rel=0.02)


@pytest.mark.parametrize("shape", ["map-reduce", "debate-context", "reflect"])
def test_prediction_is_within_15_percent_of_the_engines(shape: str) -> None:
    scene = Scene(SHAPES[shape](18), engines(slow=(1.0, 1.5)), 1)
    made = scene.planned()
    assert made.seconds == pytest.approx(scene.run(follow(scene, made)).seconds, rel=0.15)


def test_predictions_rank_plans_as_the_engines_do() -> None:
    scene = Scene(SHAPES["reflect"](18), engines(slow=(1.0, 2.0)), 1)
    made = scene.planned()
    even = Scene(scene.batch, engines(), 1).planned()
    plans = [
        made,
        replace(even, windows=made.windows),
        replace(made, windows=(8, 8)),
        replace(made, windows=(2, 2)),
    ]
    found = operations(scene.batch.calls, build_tree(scene.batch.calls))
    predicted = [
        predicted_plan(one, found, scene.replicas, scene.batch.distinct).seconds for one in plans
    ]
    played = [scene.run(follow(scene, one, shared=False)).seconds for one in plans]
    by_time = range(len(plans))
    assert sorted(by_time, key=predicted.__getitem__) == sorted(by_time, key=played.__getitem__)
