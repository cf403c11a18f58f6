"""First turns that are looked up, and those that are not."""

from __future__ import annotations

import pytest
from weft_gateway.programs.lineage.first_turns import ALONE, SAMPLED, FirstTurns, is_first_turn

FIRST = {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]}
NEXT = {"messages": [*FIRST["messages"], {"role": "assistant", "content": "a"}]}


def after(count: int) -> FirstTurns:
    turns = FirstTurns()
    for _ in range(count):
        assert not turns.skips("t", FIRST)
        turns.looked_up("t", FIRST, new=True)
    return turns


def test_one_in_sixteen_is_looked_up_after_many_first_turns_in_a_row():
    turns = after(ALONE)
    skipped = [turns.skips("t", FIRST) for _ in range(10 * SAMPLED)]
    assert skipped.count(False) == 10
    assert not turns.skips("other", FIRST)


def test_every_other_call_is_looked_up():
    turns = after(ALONE)
    assert not turns.skips("t", NEXT)
    assert not turns.skips("t", {**FIRST, "tools": []})


@pytest.mark.parametrize(("body", "new"), [(NEXT, True), (FIRST, False)])
def test_a_continued_call_starts_the_count_again(body, new):
    turns = after(ALONE)
    assert any(turns.skips("t", FIRST) for _ in range(SAMPLED))
    turns.looked_up("t", body, new)
    assert not any(turns.skips("t", FIRST) for _ in range(SAMPLED))


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"messages": "text"},
        {"messages": [1]},
        {"messages": [{"role": ["user"]}]},
        {"messages": [{"role": {}}]},
        {"input": "text"},
    ],
)
def test_bodies_of_another_form_are_no_first_turns(body):
    assert not is_first_turn(body)
