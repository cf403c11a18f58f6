"""Baseline schedules."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.planning import chain, workflows
from weft_bench.planner.baselines import BASELINES, nested_order
from weft_bench.planner.problem import Calls, Rows, expand, operations
from weft_bench.planner.radix import build_tree, dependencies
from weft_bench.planner.schedule import schedule
from weft_bench.planner.token_steps import Worker, token_steps
from weft_run.plan.calls import PlannedCall

_WORKER = Worker(8192)


def small(calls: tuple[PlannedCall, ...], rows: int) -> Calls:
    found = operations(calls, build_tree(calls))
    place = {one.name: number for number, one in enumerate(found)}
    closure = [sorted(place[need] for need in needs) for needs in dependencies(calls).values()]
    return expand(found, closure, Rows(rows, {}), 16)


def steps(batch: Calls, order: list[int]) -> float:
    return token_steps([order], batch.answers, batch.needs, batch.prefill, [_WORKER])


@pytest.mark.parametrize("name", BASELINES)
@settings(max_examples=10)
@given(calls=workflows(), rows=st.integers(1, 3), seed=st.integers(0, 3))
def test_every_call_is_served_once_after_its_inputs(
    name: str, calls: tuple[PlannedCall, ...], rows: int, seed: int
) -> None:
    batch = small(calls, rows)
    order = BASELINES[name](batch, _WORKER, Random(seed))
    assert order == BASELINES[name](batch, _WORKER, Random(seed))
    assert sorted(order) == list(range(len(batch)))
    assert steps(batch, order) > 0


def test_query_wise_waits_for_every_answer() -> None:
    batch = small(chain(), 3)
    costs = {name: steps(batch, one(batch, _WORKER, Random(0))) for name, one in BASELINES.items()}
    assert max(costs, key=costs.__getitem__) == "query-wise"


def test_longest_prefix_stays_with_one_role() -> None:
    batch = small(chain()[:2], 3)
    order = BASELINES["longest prefix"](batch, _WORKER, Random(0))
    assert [batch.operation[one] for one in order] in ([0, 0, 0, 1, 1, 1], [1, 1, 1, 0, 0, 0])


def test_nested_sequences_run_row_by_row() -> None:
    batch = small(chain(), 2)
    assert nested_order(batch, [[0, 1], [2]], 2) == [0, 1, 3, 4, 2, 5]
    assert nested_order(batch, [[0, 1], [2]], 2, 1) == [0, 1, 2, 3, 4, 5]
    helium = schedule(chain(), {"w": _WORKER})["w"]
    place = {"first": 0, "second": 1, "judge": 2}
    order = nested_order(batch, [[place[name] for name in one] for one in helium], 2)
    assert steps(batch, order) <= steps(batch, BASELINES["query-wise"](batch, _WORKER, Random(0)))
