"""`weft run` on simulated engines, and rows that arrive one by one."""

from __future__ import annotations

import pytest
from weft_bench.workflows.dispatch import Batches
from weft_bench.workflows.halo_shapes import HALO
from weft_bench.workflows.running import workflow_of
from weft_bench.workflows.shapes import SHAPES
from weft_bench.workflows.systems import SYSTEMS, Scene, engines
from weft_run.plan.groups import leading_columns


@pytest.mark.parametrize(
    ("shape", "path"),
    [
        ("map-reduce-context", ("context", "question")),
        ("debate", ("question",)),
        ("iterative", ()),
        ("trading", ("stock",)),
    ],
)
def test_prompts_of_the_workflow_begin_as_those_of_the_batch(shape: str, path: object) -> None:
    batch = SHAPES[shape](6)
    workflow = workflow_of(batch)
    assert len(workflow.operators) == len(batch.calls)
    assert leading_columns(workflow) == path


@pytest.mark.engine
@pytest.mark.parametrize("system", ["topological", "random", "weft run"])
def test_no_row_ends_before_it_arrives(system: str) -> None:
    pytest.importorskip("vllm")
    scene = Scene(HALO["W4 vote"](6), engines(), 0)
    arrivals = [0.0, 0.0, 0.1, 5.0, 5.0, 30.0]
    found = scene.run(SYSTEMS[system](scene), arrivals)
    assert min(found.latencies) > 0
    assert found.seconds == pytest.approx(30 + found.latencies[-1])
    # The first rows do not wait for the last one.
    assert max(found.latencies[:3]) < 4.9


@pytest.mark.engine
def test_topological_order_begins_a_batch_when_the_last_one_has_ended() -> None:
    pytest.importorskip("vllm")
    scene = Scene(HALO["W2 critique"](4), engines(), 0)
    sent: list[tuple[int, int]] = []

    class Noted(Batches):
        def send(self, state, fresh):  # type: ignore[no-untyped-def]
            for number, name in super().send(state, fresh):
                sent.append((self.tasks[number].row, self.tasks[number].call))
                yield number, name

    scene.run(Noted(scene.tasks, scene.names, scene.rng, 3), [0.0, 0.0, 0.001, 0.001])
    steps = [sent[at : at + 2] for at in range(0, len(sent), 2)]
    assert [({row for row, _ in one}, {call for _, call in one}) for one in steps] == [
        (rows, {call}) for rows in ({0, 1}, {2, 3}) for call in range(3)
    ]


@pytest.mark.engine
def test_rows_with_one_context_run_on_one_engine() -> None:
    pytest.importorskip("vllm")
    cached = {}
    for system in ("random", "weft run"):
        scene = Scene(SHAPES["map-reduce-context"](24), engines(), 0)
        cached[system] = scene.run(SYSTEMS[system](scene)).hit_rate
    assert cached["weft run"] > cached["random"]


@pytest.mark.engine
def test_an_engine_of_half_the_speed_gets_about_a_third_of_the_calls() -> None:
    pytest.importorskip("vllm")
    scene = Scene(SHAPES["map-reduce"](25), engines(slow=(1.0, 2.0)), 0)
    found = scene.run(SYSTEMS["weft run"](scene))
    assert 0.29 < found.shares["replica-1"] < 0.36
