"""Orders of single calls."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.planning import chain, replica, workflows
from weft_bench.planner.plan import candidates
from weft_bench.planner.problem import Rows, expand, operations
from weft_bench.planner.radix import build_tree, dependencies
from weft_bench.planner.single import Orders, improved, shuffled
from weft_bench.planner.token_steps import Worker, token_steps
from weft_run.plan.calls import PlannedCall

SINGLE = "single calls"


def _changes(orders: Orders) -> float:
    """The number of neighbours of another group; calls of a group have the same tens."""
    return sum(a // 10 != b // 10 for order in orders for a, b in pairwise(order))


def test_calls_move_until_no_move_gains() -> None:
    assert improved(((1, 11, 2, 12, 3),), _changes) == ((1, 2, 3, 11, 12),)


def test_calls_stay_on_their_replica() -> None:
    ours, theirs = improved(((1, 11, 2), (3, 12, 4)), _changes)
    assert (sorted(ours), sorted(theirs)) == ([1, 2, 11], [3, 4, 12])
    assert _changes((ours, theirs)) == 2


def test_orders_in_which_calls_would_wait_for_each_other_are_not_chosen() -> None:
    def cost(orders: Orders) -> float:
        (order,) = orders
        if order.index(2) < order.index(1):
            raise ValueError
        return float(order.index(2))

    assert improved(((3, 1, 2),), cost) == ((1, 2, 3),)


def test_empty_orders_stay() -> None:
    assert improved(((), (7,)), lambda orders: 0.0) == ((), (7,))


@given(st.permutations(range(5)), st.lists(st.integers(0, 9), min_size=25, max_size=25))
def test_result_is_no_worse_and_no_move_gains(start: list[int], prices: list[int]) -> None:
    def cost(orders: Orders) -> float:
        (order,) = orders
        return float(sum(prices[5 * a + b] for a, b in pairwise(order)))

    (found,) = improved((tuple(start),), cost)
    assert sorted(found) == list(range(5))
    least = cost((found,))
    assert least <= cost((tuple(start),))
    for call in found:
        rest = [one for one in found if one != call]
        for place in range(5):
            assert cost(((*rest[:place], call, *rest[place:]),)) >= least


@given(st.integers(0, 2**32))
def test_random_orders_keep_replicas_and_inputs(seed: int) -> None:
    needs = ((), (0,), (), (0, 1, 2), (2,))
    found = shuffled(((0, 3, 4), (1, 2)), needs, Random(seed))
    assert [sorted(order) for order in found] == [[0, 3, 4], [1, 2]]
    assert found[0].index(0) < found[0].index(3)
    # Raises if calls wait for each other.
    token_steps(found, [1.0] * 5, needs, lambda last, call: 1.0, [Worker(100.0)] * 2)


def test_random_orders_differ() -> None:
    start = (tuple(range(6)),)
    assert len({shuffled(start, [()] * 6, Random(seed)) for seed in range(20)}) > 15


def costs_of(calls: Sequence[PlannedCall], rows: int) -> dict[str, float]:
    """Return the token steps of each candidate on one replica."""
    engine = replica("a")
    found = operations(calls, build_tree(calls))
    place = {item.name: number for number, item in enumerate(found)}
    closure = [sorted(place[need] for need in needs) for needs in dependencies(calls).values()]
    batch = expand(found, closure, Rows(rows, {}), engine.block)
    costs = {}
    for one in candidates(calls, rows, [engine]):
        order = [rank * len(found) + place[name] for name, rank in one.calls("a")]
        assert sorted(order) == list(range(len(batch)))
        workers = [Worker(engine.kv_tokens)]
        costs[one.order] = token_steps([order], batch.answers, batch.needs, batch.prefill, workers)
    return costs


@given(workflows(), st.integers(1, 4))
def test_small_batches_have_an_order_of_single_calls_that_is_no_worse(
    calls: tuple[PlannedCall, ...], rows: int
) -> None:
    costs = costs_of(calls, rows)
    assert (SINGLE in costs) == (len(calls) * rows <= 16)
    assert costs.get(SINGLE, 0.0) <= min(costs.values())


def test_single_calls_save_token_steps() -> None:
    costs = costs_of(chain(), 4)
    assert costs.pop(SINGLE) < min(costs.values())


def test_single_calls_of_several_replicas_have_one_turn_each() -> None:
    made = candidates(chain(), 5, [replica("a"), replica("b")])[-1]
    assert made.order == SINGLE
    turns = {(name, rank): made.turn(name, rank) for name in made.operators for rank in range(5)}
    assert len(set(turns.values())) == 15
    for (_, rank), (at, turn) in turns.items():
        judge = turns["judge", rank]
        assert at != judge[0] or turn <= judge[1]
    listed = [one for replica_name in made.replicas for one in made.calls(replica_name)]
    assert sorted(listed) == sorted(turns)
    with pytest.raises(IndexError):
        made.turn("judge", 5)
