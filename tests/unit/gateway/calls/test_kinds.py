"""Kinds and stages: those that clients name, and those that the prompt tells."""

from __future__ import annotations

from typing import Any

import pytest
from weft_gateway.calls.kinds import MAX_NAMES, NamedKinds, stage_of
from weft_gateway.model.hint import Hints
from weft_gateway.policies.hints import read_hints


def named(kind: str) -> Hints:
    return read_hints({"weft": {"kind": kind}}, {b"x-weft-stages-left": b"3"})


def test_names_of_a_tenant_are_bounded_and_the_fate_says_so() -> None:
    kinds = NamedKinds()
    for number in range(MAX_NAMES):
        assert kinds.admitted("a", named(f"k{number}"), 0.0).kind == f"k{number}"
    over = kinds.admitted("a", named("new"), 1.0)
    assert (over.kind, over.stages_left) == (None, 3)
    kind, left = over.fates
    assert kind == f"weft.kind=ignored: the key uses {MAX_NAMES} kinds and stages already"
    assert left.startswith("x-weft-stages-left=applied")
    # Known names, other tenants, and names after an hour without use are not affected.
    assert kinds.admitted("a", named("k0"), 1.0).kind == "k0"
    assert kinds.admitted("b", named("new"), 1.0).kind == "new"
    assert kinds.admitted("a", named("new"), 3601.0).kind == "new"
    assert len(kinds._names["a"]) == MAX_NAMES


def test_number_of_tenants_is_bounded() -> None:
    kinds = NamedKinds()
    for number in range(2000):
        kinds.admits(f"t{number}", "k", "", 0.0)
    assert len(kinds._names) == 1024


def system(text: Any, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "system", "content": text}, {"role": "user"}], **more}


TOOLS = [{"type": "function", "function": {"name": "find"}}, {"name": "read"}]


@pytest.mark.parametrize(
    "other",
    [
        system("Review."),
        system("Write.", tools=TOOLS),
        system("Write.", instructions="Review."),
        {"system": "Write.", "messages": []},
        {"messages": []},
        {},
    ],
)
def test_prompt_and_tools_tell_the_stage(other: dict[str, Any]) -> None:
    assert stage_of(other) != stage_of(system("Write."))


def test_user_messages_do_not_tell_the_stage() -> None:
    body = system("Write.", tools=TOOLS)
    body["messages"].append({"role": "user", "content": "another"})
    assert stage_of(body) == stage_of(system([{"type": "text", "text": "Write."}], tools=TOOLS))


@pytest.mark.parametrize(
    "body",
    [
        {"messages": 3, "tools": 3, "system": 3},
        {"messages": [3], "tools": [3, None]},
        system({"text": 3}, tools=[{"function": {"name": ["x"]}}]),
        system([[3]], tools=[{}]),
    ],
)
def test_malformed_bodies_have_a_stage(body: dict[str, Any]) -> None:
    assert stage_of(body)
