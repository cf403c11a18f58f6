"""The optimal order of small batches."""

from __future__ import annotations

import sys
from itertools import permutations
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize
from support.planning import chain, workflows
from weft_bench.planner.problem import Calls, Rows, expand, operations
from weft_bench.planner.radix import build_tree, dependencies
from weft_bench.planner.token_steps import Worker, delay, token_steps, usage
from weft_bench.workflows.exact import solve
from weft_bench.workflows.shapes import debate, iterative, map_reduce, parallel, reflect
from weft_bench.workflows.tasks import varied
from weft_run.plan.calls import PlannedCall

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


def _highs(batch: Calls, worker: Worker) -> float:
    """Return the least token steps by HiGHS: the problem of Helium's section 5 as a mixed-integer
    program. after[i, j]: call j runs directly after call i, or first for i = n.
    """
    n, rate = len(batch), worker.rate
    # Columns: after[i, j] row by row, begins, the end of all.
    count = (n + 1) * n + n + 1
    begin = (n + 1) * n
    took = np.array(
        [
            [
                usage(batch.prefill(None if i == n else i, j), batch.answers[j], rate)
                for j in range(n)
            ]
            for i in range(n + 1)
        ]
    )
    waits = [delay(one, rate, worker.kv_tokens) for one in batch.answers]
    far = float(took.max(axis=0).sum() + sum(waits))
    rows, low, high = [], [], []

    def require(terms: dict[int, float], least: float, most: float = np.inf) -> None:
        row = np.zeros(count)
        for column, factor in terms.items():
            row[column] += factor
        rows.append(row)
        low.append(least)
        high.append(most)

    def taken(j: int, sign: float) -> dict[int, float]:
        return {i * n + j: sign * took[i, j] for i in range(n + 1)}

    for j in range(n):
        require({i * n + j: 1.0 for i in range(n + 1)}, 1, 1)
        require({j * n + k: 1.0 for k in range(n)}, 0, 1)
        require({j * n + j: 1.0}, 0, 0)
        require({count - 1: 1.0, begin + j: -1.0, **taken(j, -1.0)}, 0)
        for need in batch.needs[j]:
            require({begin + j: 1.0, begin + need: -1.0, **taken(need, -1.0)}, waits[need])
        for i in range(n):
            if i != j:
                terms = {begin + j: 1.0, begin + i: -1.0, **taken(i, -1.0)}
                terms[i * n + j] = terms.get(i * n + j, 0.0) - far
                require(terms, -far)
    require({n * n + j: 1.0 for j in range(n)}, 1, 1)
    whole = np.zeros(count)
    whole[:begin] = 1
    upper = np.full(count, np.inf)
    upper[:begin] = 1
    target = np.zeros(count)
    target[-1] = 1
    found = optimize.milp(
        target,
        integrality=whole,
        bounds=optimize.Bounds(np.zeros(count), upper),
        constraints=optimize.LinearConstraint(np.array(rows), np.array(low), np.array(high)),
    )
    assert found.success
    return float(found.fun)


@pytest.mark.parametrize(
    ("name", "agents", "rows"), [("map-reduce", 2, 2), ("debate", 2, 2), ("reflect", 1, 2)]
)
def test_optimum_is_that_of_highs(name: str, agents: int, rows: int) -> None:
    shape = {"map-reduce": map_reduce, "debate": debate, "reflect": reflect}[name]
    batch = varied(shape(rows, agents), Random(agents))
    small = _small(batch.calls, rows)
    assert solve(small, _WORKER).steps == pytest.approx(_highs(small, _WORKER), rel=1e-5)


def _cp_sat(batch: Calls, worker: Worker) -> float:
    """Return the least token steps by CP-SAT: the same problem as a circuit through all calls and
    a start, n. after[i, j]: call j runs directly after call i.
    """
    from ortools.sat.python import cp_model

    n, rate = len(batch), worker.rate

    def whole(steps: float) -> int:
        # CP-SAT needs integers. Lengths are whole tokens here, so that this rounding is exact.
        scaled = 2 * worker.kv_tokens * steps
        assert scaled == pytest.approx(round(scaled), rel=1e-12)
        return round(scaled)

    took = {
        (i, j): whole(usage(batch.prefill(None if i == n else i, j), batch.answers[j], rate))
        for i in range(n + 1)
        for j in range(n)
        if i != j
    }
    waits = [whole(delay(one, rate, worker.kv_tokens)) for one in batch.answers]
    far = sum(max(took[i, j] for i in range(n + 1) if i != j) for j in range(n)) + sum(waits)
    model = cp_model.CpModel()
    after = {arc: model.new_bool_var("") for arc in took}
    model.add_circuit(
        [(i, j, one) for (i, j), one in after.items()]
        + [(j, n, model.new_bool_var("")) for j in range(n)]
    )
    begin, length, done = ([model.new_int_var(0, far, "") for _ in range(n)] for _ in range(3))
    end = model.new_int_var(0, far, "")
    for j in range(n):
        model.add(length[j] == sum(after[i, j] * took[i, j] for i in range(n + 1) if i != j))
        model.add(end >= done[j])
        for need in batch.needs[j]:
            model.add(begin[j] >= done[need] + waits[need])
        for i in range(n):
            if i != j:
                model.add(begin[j] >= done[i]).only_enforce_if(after[i, j])
    # Both follow from the circuit. Without the intervals, some proofs take over a minute.
    model.add_no_overlap(
        [model.new_interval_var(begin[j], length[j], done[j], "") for j in range(n)]
    )
    model.add(end >= sum(length))
    model.minimize(end)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 1
    solver.parameters.linearization_level = 2
    # In the solver's own units of work, so that a slow machine has the same result.
    solver.parameters.max_deterministic_time = 60
    assert solver.solve(model) == cp_model.OPTIMAL
    return solver.objective_value / (2 * worker.kv_tokens)


@pytest.mark.slow
@pytest.mark.skipif(sys.version_info >= (3, 13), reason="OR-Tools 9.10 has no wheel")
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    ("name", "agents", "rows"),
    [
        ("map-reduce", 4, 2),
        ("map-reduce", 2, 4),
        ("debate", 3, 2),
        ("parallel", 3, 2),
        ("parallel", 2, 3),
        ("reflect", 2, 4),
        ("iterative", 4, 4),
    ],
)
def test_optimum_is_that_of_cp_sat(name: str, agents: int, rows: int, seed: int) -> None:
    batch = {
        "map-reduce": lambda: map_reduce(rows, agents),
        "debate": lambda: debate(rows, agents),
        "reflect": lambda: reflect(rows, agents),
        "iterative": lambda: iterative(rows, agents),
        "parallel": lambda: parallel(rows, agents, 1),
    }[name]()
    small = _small(varied(batch, Random(seed)).calls, rows)
    assert solve(small, _WORKER).steps == pytest.approx(_cp_sat(small, _WORKER), rel=1e-9)


def test_proof_visits_few_of_all_orders() -> None:
    batch = _small(chain(), 4)
    found = solve(batch, _WORKER)
    assert len(found.order) == 12
    # 12! / (3! ** 4) orders respect the inputs.
    assert found.ways < 20_000
