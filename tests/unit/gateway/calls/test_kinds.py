"""Stages, as prompts tell them."""

from __future__ import annotations

from typing import Any

import pytest
from weft_gateway.calls.kinds import stage_of


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
