"""Algorithm 1 as a plan of a run: even slices, and the order of the schedule."""

from __future__ import annotations

import pytest
from weft_bench.mapred.algorithm_1 import Sliced
from weft_bench.mapred.spider import workflow as spider
from weft_bench.mapred.workload import EXPERTS, workflow
from weft_run.language.spec import load
from weft_run.plan.calls import planned_calls
from weft_run.plan.commands import ANY

TWO = {
    "a1": frozenset({"a"}),
    "b1": frozenset({"b"}),
    "a2": frozenset({"a"}),
    "b2": frozenset({"b"}),
}


def test_each_model_has_even_slices_on_its_replicas() -> None:
    plan = Sliced(planned_calls(load(spider("a", "b", 8, ["x"]))), TWO, 5, 32_000)
    assert [plan.replica("tables", row) for row in range(5)] == ["a1"] * 3 + ["a2"] * 2
    assert [plan.replica("attempt.draft", row) for row in range(5)] == ["b1"] * 3 + ["b2"] * 2
    assert [plan.turn("tables", row) for row in range(5)] == [(0,), (1,), (2,), (0,), (1,)]
    assert plan.replica("attempt.query", 0) == ANY
    assert plan.turn("attempt.query", 4) == (0,)


def test_calls_have_the_turns_of_nested_sequences() -> None:
    calls = planned_calls(load(workflow("m", 8)))
    plan = Sliced(calls, {"r": None}, 4, 32_000)
    turns = {(name, row): plan.turn(name, row)[0] for name in EXPERTS for row in range(4)}
    assert sorted(turns.values()) == list(range(4 * len(EXPERTS)))
    # Experts have different static prefixes: each expert runs over all rows, then the editor.
    first = min(EXPERTS, key=lambda name: turns[name, 0])
    assert [turns[first, row] for row in range(4)] == [0, 1, 2, 3]
    assert [plan.turn("answer", row)[0] for row in range(4)] == [28, 29, 30, 31]


def test_a_model_without_replica_is_an_error() -> None:
    calls = planned_calls(load(workflow("m", 8)))
    with pytest.raises(ValueError, match="no replica serves the model 'm'"):
        Sliced(calls, TWO, 4, 32_000)
