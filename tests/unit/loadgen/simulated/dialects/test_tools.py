"""A tool that is forced is called with what its schema allows."""

from __future__ import annotations

import json

import pytest
from weft_bench.simulated.dialects.tools import ToolCall, example, forced

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 12},
        "unit": {"enum": ["C", "F"]},
        "days": {"type": "integer", "minimum": 3},
        "exact": {"type": "boolean"},
        "stops": {"type": "array", "items": {"type": "number"}, "minItems": 2},
        "where": {"anyOf": [{"type": "null"}, {"type": "string"}]},
        "not_asked": {"type": "string"},
    },
    "required": ["city", "unit", "days", "exact", "stops", "where"],
}
WANTED = {
    "city": "simulated...", "unit": "C", "days": 3, "exact": True, "stops": [1, 1], "where": None,
}  # fmt: skip
CHAT = [{"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}]
FLAT = [{"type": "function", "name": "weather", "parameters": SCHEMA}]
ANTHROPIC = [{"name": "other"}, {"name": "weather", "input_schema": SCHEMA}]


@pytest.mark.parametrize(
    ("tools", "choice"),
    [
        (CHAT, {"type": "function", "function": {"name": "weather"}}),
        (CHAT, "required"),
        (FLAT, {"type": "function", "name": "weather"}),
        (ANTHROPIC, {"type": "tool", "name": "weather"}),
        (ANTHROPIC[1:], {"type": "any"}),
    ],
)
def test_the_tool_that_is_forced_is_called(tools, choice):
    call = forced({"tools": tools, "tool_choice": choice})
    assert call.name == "weather"
    assert json.loads(call.arguments) == WANTED


@pytest.mark.parametrize("choice", [None, "auto", "none", {"type": "auto"}])
def test_none_is_called_where_it_is_left_open(choice):
    assert forced({"tools": CHAT, "tool_choice": choice}) is None


def test_a_tool_without_a_schema_gets_no_arguments_and_one_that_is_not_there_is_refused():
    body = {"tools": [{"name": "now"}], "tool_choice": {"type": "tool", "name": "now"}}
    assert forced(body) == ToolCall("now", "{}")
    with pytest.raises(ValueError, match="'then'"):
        forced(body | {"tool_choice": {"type": "tool", "name": "then"}})


def test_a_schema_without_an_end_has_one():
    endless: dict = {"type": "object", "required": ["again"], "properties": {}}
    endless["properties"]["again"] = endless
    assert json.dumps(example(endless)).count("again") == 17
