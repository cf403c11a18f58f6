"""Plans of batches."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.planning import call, chain, replica, static, varies, workflows
from weft_bench.planner.baselines import BASELINES
from weft_bench.planner.plan import Plan, plan
from weft_bench.planner.predict import predict
from weft_bench.planner.problem import Rows, expand, operations
from weft_bench.planner.radix import build_tree, dependencies
from weft_bench.planner.token_steps import Worker
from weft_run.plan.calls import PlannedCall
from weft_run.plan.prompts import Slot

_TWO = [replica("a", models=["m"]), replica("b", slow=1.7)]


@settings(max_examples=30)
@given(workflows(models=("m", "n")), st.integers(1, 20), st.integers(0, 2))
def test_every_call_runs_once_and_has_one_turn(
    calls: tuple[PlannedCall, ...], rows: int, seed: int
) -> None:
    made = plan(calls, rows, _TWO, seed=seed)
    turns = {(one.name, rank): made.turn(one.name, rank) for one in calls for rank in range(rows)}
    assert len(set(turns.values())) == len(turns)
    models = {one.name: one.model for one in calls}
    assert all(at == "b" for (name, _), (at, _) in turns.items() if models[name] == "n")
    listed = [one for name in made.replicas for one in made.calls(name)]
    assert sorted(listed) == sorted(turns)


@settings(max_examples=30)
@given(workflows(), st.integers(1, 20))
def test_no_call_has_a_turn_before_its_inputs(calls: tuple[PlannedCall, ...], rows: int) -> None:
    made = plan(calls, rows, [replica("a")])
    for one in calls:
        for need in one.needs:
            assert all(
                made.turn(need, rank)[1] < made.turn(one.name, rank)[1] for rank in range(rows)
            )


@settings(max_examples=15)
@given(workflows(), st.integers(1, 50), st.integers(0, 2))
def test_same_arguments_give_the_same_bytes(
    calls: tuple[PlannedCall, ...], rows: int, seed: int
) -> None:
    data = plan(calls, rows, _TWO, {"question": 3}, seed).encode()
    assert plan(calls, rows, _TWO, {"question": 3}, seed).encode() == data
    again = Plan.decode(data)
    assert again.encode() == data
    assert again.turn(calls[0].name, rows - 1)[0] in ("a", "b")


@settings(max_examples=20, deadline=None)
@given(workflows(), st.integers(1, 6))
def test_plan_is_seldom_slower_than_the_best_baseline(
    calls: tuple[PlannedCall, ...], rows: int
) -> None:
    """In predicted seconds. Greedy dispatch is no lower bound: a tenth is the limit."""
    found = operations(calls, build_tree(calls))
    one = replica("a")
    made = plan(calls, rows, [one])
    place = {item.name: number for number, item in enumerate(found)}
    closure = [sorted(place[need] for need in needs) for needs in dependencies(calls).values()]
    batch = expand(found, closure, Rows(rows, {}), 16)
    for baseline in BASELINES.values():
        order = baseline(batch, Worker(one.kv_tokens), Random(0))
        turns = {(batch.operation[c], batch.row[c]): at for at, c in enumerate(order)}
        played = predict(
            found, Rows(rows, {}), [one], lambda n, row, turns=turns: (0, turns[n, row]), [32]
        )
        assert made.seconds <= 1.1 * played.seconds + 1e-6


def test_size_does_not_grow_with_the_rows() -> None:
    small, large = (plan(chain(), rows, _TWO) for rows in (500, 1_000_000))
    assert len(large.encode()) < len(small.encode()) + 100
    assert large.seconds > 1500 * small.seconds


def test_unequal_replicas_end_together() -> None:
    made = plan(chain(), 100, [replica("a"), replica("b", slow=3.0)])
    (share,) = made.shares
    assert share.rows(0, 100) == 75


def test_rows_are_sorted_by_columns_with_repeated_values() -> None:
    calls = (call("a", Slot("context", 500, ("context",)), varies("question")),)
    assert plan(calls, 60, _TWO, {"context": 10}).row_order == ("context",)
    assert plan(calls, 60, _TWO).row_order == ()


def test_repeated_values_are_predicted_as_cached() -> None:
    calls = (call("a", Slot("context", 512, ("context",)), varies("question", 32)),)
    made = plan(calls, 60, [replica("a")], {"context": 6})
    assert made.hit_rate == pytest.approx(54 * 512 / (60 * 544))


def test_impossible_plans_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 row"):
        plan(chain(), 0, _TWO)
    with pytest.raises(ValueError, match="at least 1 replica"):
        plan(chain(), 1, [])
    with pytest.raises(ValueError, match="no replica serves 'm'"):
        plan(chain(), 1, [replica("a", models=["other"])])
    late = (call("a", static("s"), needs=("b",)), call("b", static("s")))
    with pytest.raises(ValueError, match="'a' needs 'b'"):
        plan(late, 1, _TWO)
    with pytest.raises(IndexError, match="row 5 is beyond the 5 rows"):
        plan(chain(), 5, _TWO).turn("judge", 5)
