"""The search over candidates, on the production router, table and orders."""

from __future__ import annotations

from math import inf

import msgspec
import pytest
from support.tuning import FAST, SLOW, calls, shape, trace
from weft_gateway.tuning.replay.play import Play
from weft_gateway.tuning.replay.prepared import prepare
from weft_gateway.tuning.replay.search import search
from weft_gateway.tuning.replay.trace import ALPHAS, Objective, Trace, Values, candidates


def whole(one: Trace, values: Values) -> float:
    """Return the score of values after a whole play."""
    one.check()
    play = Play(prepare(one), values)
    play.run_until(inf)
    assert play.done
    return play.score(one.objective)


def test_candidates_are_the_current_alpha_and_all_others() -> None:
    found = candidates(Values(alpha=0.2))
    assert len(found) == len(set(found)) == 11
    assert found[0] == Values(0.2)
    assert {one.alpha for one in found} == set(ALPHAS)
    assert candidates(Values()) == [Values()]


@pytest.mark.parametrize("seed", range(3))
def test_the_choice_is_within_three_percent_of_the_best(seed: int) -> None:
    one = trace(calls=calls(30, seed), current=Values(alpha=1.0))
    best = min(whole(one, values) for values in candidates(one.current))
    assert search(one).score <= 1.03 * best


def test_the_same_trace_has_the_same_result() -> None:
    assert search(trace(8)) == search(trace(8))


def test_deadlines_are_replayed_with_the_order_slack() -> None:
    made = [
        msgspec.structs.replace(call, deadline_s=60.0, cost_s=1.0, remaining=5, later_s=1.0)
        for call in calls(10, rate=2.0)
    ]
    found = search(
        trace(
            calls=made,
            order="slack",
            balancer="work",
            current=Values(0.5),
            objective=Objective.DEADLINE,
        )
    )
    assert found.score <= found.now
    assert {one.values.alpha for one in found.tried} == set(ALPHAS)


@pytest.mark.parametrize(
    "order", ["fcfs", "resident", "slack", "mlfq", "plas", "vtc", "qlm", "llf"]
)
@pytest.mark.parametrize("balancer", ["work", "locality", "power_of_two"])
def test_every_order_and_balancer_ends_all_calls(order: str, balancer: str) -> None:
    assert whole(trace(5, order=order, balancer=balancer), Values()) > 0


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"calls": [shape(prompt=-1)]}, "CallShape.prompt"),
        ({"replicas": (msgspec.structs.replace(FAST, slots=0), SLOW)}, "ReplicaShape.slots"),
        ({"counted": [99]}, "counted unit"),
        ({"replicas": ()}, "needs replicas"),
        ({"order": "lottery"}, "unknown policy"),
        ({"calls": [shape(model=8)]}, "no replica serves"),
    ],
)
def test_a_broken_trace_is_refused(fields: dict[str, object], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        search(trace(2, **fields))
