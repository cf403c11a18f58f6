"""The calls of a batch."""

from __future__ import annotations

import pytest
from weft_bench.planner.problem import operations
from weft_bench.planner.radix import build_tree
from weft_bench.workflows.rewritten import rewritten
from weft_bench.workflows.shapes import SHAPES
from weft_bench.workflows.tasks import equal_calls, first_statics, tasks


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_are_complete(name: str) -> None:
    batch = SHAPES[name](12)
    found = tasks(batch, 0)
    assert len(found) == 12 * len(batch.calls)
    assert tasks(batch, 0) == found
    assert tasks(batch, 1) != found
    assert all(need < task.number for task in found for need in task.needs)
    # A name is either text or an answer, never both.
    calls = {call.name for call in batch.calls}
    assert not calls & {part for parts in first_statics(batch.calls) for part in parts}


def test_shapes_are_those_of_the_paper() -> None:
    counts = {name: len(shape(1).calls) for name, shape in SHAPES.items()}
    assert counts["trading"] == 88
    assert counts["map-reduce"] == 14 + 1
    assert counts["debate"] == 3 * 2
    assert counts["reflect"] == 1 + 2 + 1
    assert counts["iterative"] == 6
    assert counts["parallel"] == 7 * (6 + 1) + 1


@pytest.mark.parametrize(
    ("name", "merged", "kept"), [("map-reduce", 8, 8), ("trading", 56, 51), ("reflect", 4, 4)]
)
def test_rewrites_drop_calls_and_change_no_other(name: str, merged: int, kept: int) -> None:
    batch = SHAPES[name](3)
    whole = {task.name: task for task in tasks(batch, 0)}
    fewer = rewritten(batch)
    assert len(rewritten(batch, cache=False).calls) == merged
    assert len(fewer.calls) == kept
    for task in tasks(fewer, 0):
        same = whole[task.name]
        assert (task.parts, task.answer, task.text) == (same.parts, same.answer, same.text)
    assert rewritten(batch, merging=False, cache=False).calls == batch.calls


@pytest.mark.parametrize("name", SHAPES)
def test_equal_calls_are_those_that_the_gateway_merges(name: str) -> None:
    batch = SHAPES[name](3)
    left = {call.name for call in rewritten(batch, cache=False).calls}
    assert {call.name for call in batch.calls} - left == set(equal_calls(batch.calls))


def test_equal_calls_have_one_answer() -> None:
    found = {task.name: task for task in tasks(SHAPES["map-reduce"](2), 0)}
    one, other, role = (found[f"expert{n}/1"] for n in (0, 7, 1))
    assert (one.parts, one.answer, one.text) == (other.parts, other.answer, other.text)
    assert one.parts != role.parts
    texts = [part.name for part in found["summary/1"].parts]
    assert texts.count("answer/expert0/1") == 2


def test_answer_returns_under_the_name_that_the_engine_caches() -> None:
    found = {task.name: task for task in tasks(SHAPES["reflect"](6), 0)}
    part = next(part for part in found["final/3"].parts if part.name == "answer/draft/3")
    assert part.tokens == found["draft/3"].answer


def test_rows_with_one_context_share_it() -> None:
    found = {task.name: task for task in tasks(SHAPES["reflect"](12), 0)}
    parts = [found[f"draft/{row}"].parts for row in range(12)]
    contexts = {part for one in parts for part in one if part.name.startswith("column context")}
    assert len(contexts) == 2


def test_operators_have_the_paths_of_their_calls() -> None:
    batch = SHAPES["trading"](1)
    found = operations(batch.calls, build_tree(batch.calls))
    assert [one.prompt for one in found] == [call.prompt_tokens for call in batch.calls]
