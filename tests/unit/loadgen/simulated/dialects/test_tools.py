"""A forced tool is called with arguments that its schema allows."""

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
def test_forced_tool_is_called(tools, choice):
    call = forced({"tools": tools, "tool_choice": choice})
    assert call.name == "weather"
    assert json.loads(call.arguments) == WANTED


@pytest.mark.parametrize("choice", [None, "auto", "none", {"type": "auto"}])
def test_no_tool_is_called_unless_forced(choice):
    assert forced({"tools": CHAT, "tool_choice": choice}) is None


def test_tool_without_schema_gets_no_arguments_and_unknown_tool_is_refused():
    body = {"tools": [{"name": "now"}], "tool_choice": {"type": "tool", "name": "now"}}
    assert forced(body) == ToolCall("now", "{}")
    with pytest.raises(ValueError, match="'then'"):
        forced(body | {"tool_choice": {"type": "tool", "name": "then"}})


def test_recursive_schema_is_cut_at_a_depth():
    endless: dict = {"type": "object", "required": ["again"], "properties": {}}
    endless["properties"]["again"] = endless
    assert json.dumps(example(endless)).count("again") == 17
