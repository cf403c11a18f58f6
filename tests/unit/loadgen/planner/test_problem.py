"""Operators with their paths, and small batches."""

from __future__ import annotations

from support.planning import call, chain, static, varies
from weft_bench.planner.problem import Rows, expand, operations
from weft_bench.planner.radix import build_tree
from weft_run.plan.prompts import Slot


def test_prompt_is_cut_where_it_begins_to_vary() -> None:
    calls = (call("a", static("role", 48), varies("question", 40), static("end", 8)),)
    (one,) = operations(calls, build_tree(calls))
    assert [(piece.tokens, piece.end, piece.axes) for piece in one.path] == [
        (48, 48, ()),
        (48, 96, ("question",)),
    ]


def test_rows_with_equal_values_share_content() -> None:
    rows = Rows(6, {"context": 2})
    assert [rows.value(("context",), rank) for rank in range(6)] == [(0,)] * 3 + [(1,)] * 3
    assert rows.value(("context", "question"), 4) == 4


def test_calls_share_what_is_equal_in_their_rows() -> None:
    calls = (
        call("a", static("role", 48), Slot("context", 64, ("context",)), varies("question", 40)),
        call("b", static("role", 48), Slot("context", 64, ("context",)), static("x", 8)),
    )
    found = operations(calls, build_tree(calls))
    small = expand(found, [(), ()], Rows(4, {"context": 2}), 16)
    assert len(small) == 8
    # The same row, rows with one context, rows with different contexts.
    assert small.shared(0, 1) == 112
    assert small.shared(0, 3) == 112
    assert small.shared(0, 5) == 48
    assert small.prefill(None, 0) == 152
    assert small.prefill(1, 0) == 40


def test_needs_are_those_of_the_same_row() -> None:
    calls = chain()
    found = operations(calls, build_tree(calls))
    small = expand(found, [(), (), (0, 1)], Rows(2, {}), 16)
    assert small.needs[5] == (3, 4)
