"""Parts of rows: each row is in one part, groups stay together, and parts have equal sizes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft_gateway.workflows.shards import group_columns, group_numbers, part_of
from weft_gateway.workflows.spec import load


def parts(groups: Sequence[int], count: int) -> list[list[int]]:
    flags = [part_of(groups, number, count) for number in range(1, count + 1)]
    assert all(sum(row) == 1 for row in zip(*flags, strict=True))
    return [[row for row, mine in enumerate(part) if mine] for part in flags]


def columns(user: str, system: str = "", more: str = "") -> tuple[str, ...]:
    text = f"""
weft: 1
name: x
model: m
inputs: {{doc: str, question: str, docs: list}}
ops:
  one: {{llm: {{system: "{system}", user: "{user}", max_tokens: 4}}}}
{more}
outputs: {{one: one}}
"""
    return group_columns(load(text, "x.yaml"))


def test_groups_are_named_by_the_columns_at_the_beginning_of_prompts() -> None:
    assert columns("{{ question }}") == ("question",)
    assert columns("{{ doc }} {{ question }}") == ("doc",)
    assert columns("{{ question }}", "You know: {{ doc }}") == ("doc",)
    assert columns("{% for d in docs %}{{ d }}{% endfor %} {{ doc }} {{ question }}") == (
        "docs", "doc",
    )  # fmt: skip
    assert columns("Hello") == ()
    answer = '  two: {llm: {user: "{{ one }} {{ doc }}", max_tokens: 4}}\n'
    assert columns("{{ question }}", more=answer + answer.replace("two", "three")) == ()


def test_groups_have_numbers_in_the_order_of_their_first_rows() -> None:
    rows = [{"a": "x", "b": 1}, {"a": "y"}, {"a": "x", "b": 2}, {"a": ["x"]}]
    assert list(group_numbers(rows, ["a"])) == [0, 1, 0, 2]
    assert list(group_numbers(rows, ["a", "b"])) == [0, 1, 2, 3]
    assert list(group_numbers(rows, [])) == [0, 0, 0, 0]


def test_rows_of_a_group_stay_together() -> None:
    mixed = [row % 6 for row in range(60)]
    found = parts(mixed, 3)
    assert [{mixed[row] for row in part} for part in found] == [{0, 1}, {2, 3}, {4, 5}]


def test_a_group_is_cut_if_parts_would_be_unequal() -> None:
    assert [len(part) for part in parts([0] * 90 + [1] * 10, 2)] == [50, 50]
    assert [len(part) for part in parts([0] * 52 + [1] * 48, 2)] == [52, 48]


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_parts_of_an_ordered_input_are_consecutive(count: int) -> None:
    for groups in ([0] * 50, list(range(50)), sorted(row % 5 for row in range(50))):
        assert [*chain(*parts(groups, count))] == list(range(50))


@given(st.lists(st.integers(0, 8), max_size=60), st.integers(1, 6))
def test_every_row_is_in_one_part_of_a_fair_size(values: list[int], count: int) -> None:
    groups = group_numbers(({"a": value} for value in values), ["a"])
    found = parts(groups, count)
    assert all(abs(len(part) - len(values) / count) <= 0.2 * len(values) / count + 1
               for part in found)  # fmt: skip
    # At most one cut within a group for each boundary of parts.
    ordered = sorted((group, number) for number, part in enumerate(found)
                     for group in {groups[row] for row in part})  # fmt: skip
    cuts = sum(len(list(each)) - 1 for _, each in groupby(ordered, key=lambda one: one[0]))
    assert cuts <= count - 1
