"""Stages that a client describes: the calls that remain on the path."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft_gateway.model import ProgramAttribute
from weft_gateway.model.slo import NO_PLAN, Plan, Stage
from weft_gateway.policies.stages import MAX_STAGE_CALLS, MAX_STAGES, decode, encode, remaining
from weft_gateway.programs.rules import check_attribute

STAGES = (Stage("find", 2), Stage("draft", 4, parallel=True), Stage("revise", 3))
DRAFT, REVISE = ("draft", 1), ("revise", 3)


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        (1, ("find", [("find", 1), DRAFT, REVISE])),
        (2, ("find", [DRAFT, REVISE])),
        (3, ("draft", [REVISE])),
        (4, ("revise", [("revise", 2)])),
        (6, ("revise", [])),
        (60, ("revise", [])),
    ],
)
def test_position_tells_the_stage(position: int, expected: object) -> None:
    assert remaining(STAGES, None, 1, position) == expected
    assert remaining(STAGES, "unknown", 1, position) == expected


@pytest.mark.parametrize(
    ("stage", "begun", "position", "expected"),
    [
        ("draft", 1, 1, ("draft", [REVISE])),
        ("find", 5, 5, ("find", [("find", 1), DRAFT, REVISE])),
        ("revise", 2, 3, ("revise", [("revise", 1)])),
        ("revise", 2, 9, ("revise", [])),
    ],
)
def test_named_stage_wins_over_the_position(
    stage: str, begun: int, position: int, expected: object
) -> None:
    assert remaining(STAGES, stage, begun, position) == expected


STAGE = st.builds(Stage, st.text("abc", min_size=1), st.integers(1, MAX_STAGE_CALLS), st.booleans())


@given(
    st.lists(STAGE, min_size=1, max_size=5),
    st.text("abc"),
    st.integers(1, 600),
    st.integers(1, 600),
)
def test_remaining_calls_are_never_more_than_the_stages_have(stages, name, begun, position) -> None:
    _, left = remaining(stages, name, min(begun, position), position)
    assert 0 <= sum(calls for _, calls in left) < sum(stage.path_calls for stage in stages)


def test_stored_form_of_the_largest_plan_fits_an_attribute() -> None:
    plan = Plan("k" * 64, tuple(Stage("s" * 64, MAX_STAGE_CALLS, True) for _ in range(MAX_STAGES)))
    assert decode(encode(plan)) == plan
    check_attribute(ProgramAttribute("stages", encode(plan), 1.0))
    assert decode("") is decode("{unreadable") is NO_PLAN
