"""The optimal order of small batches."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.planning import chain, workflows
from weft_bench.planner.problem import Calls, Rows, expand, operations
from weft_bench.planner.radix import build_tree, dependencies
from weft_bench.planner.token_steps import Worker, token_steps
from weft_bench.workflows.exact import solve
from weft_gateway.workflows.calls import PlannedCall

_WORKER = Worker(8192)


def _small(calls: tuple[PlannedCall, ...], rows: int, contexts: int = 0) -> Calls:
    found = operations(calls, build_tree(calls, block=1))
    place = {one.name: number for number, one in enumerate(found)}
    closure = [sorted(place[need] for need in needs) for needs in dependencies(calls).values()]
    distinct = {"question": contexts} if contexts else {}
    return expand(found, closure, Rows(rows, distinct), 1)


def _steps(batch: Calls, order: tuple[int, ...]) -> float:
    return token_steps([order], batch.answers, batch.needs, batch.prefill, [_WORKER])


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(workflows(), st.integers(1, 3), st.integers(0, 2))
def test_solution_is_that_of_all_permutations(
    calls: tuple[PlannedCall, ...], rows: int, contexts: int
) -> None:
    batch = _small(calls[:3], rows if len(calls[:3]) * rows <= 6 else 1, contexts)
    best = min(
        _steps(batch, order)
        for order in permutations(range(len(batch)))
        if all(order.index(need) < order.index(c) for c in order for need in batch.needs[c])
    )
    found = solve(batch, _WORKER)
    assert found.steps == pytest.approx(best)
    assert _steps(batch, found.order) == pytest.approx(found.steps)


def test_proof_visits_few_of_all_orders() -> None:
    batch = _small(chain(), 4)
    found = solve(batch, _WORKER)
    assert len(found.order) == 12
    # 12! / (3! ** 4) orders respect the inputs.
    assert found.ways < 20_000
