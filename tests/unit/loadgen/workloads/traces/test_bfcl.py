"""BFCL's multi-turn tasks."""

from __future__ import annotations

import json
from random import Random

import pytest
from support.traces import recognised
from weft_bench.workloads.traces import bfcl

FUNCTIONS = [
    {
        "api": "math_api",
        "function": {
            "name": "add",
            "description": "Adds.",
            "parameters": {
                "type": "dict",
                "properties": {
                    "a": {"type": "float"},
                    "type": {"type": "tuple", "items": {"type": "any"}},
                },
                "required": ["a"],
            },
            "response": {"type": "dict", "properties": {"sum": {"description": "The sum."}}},
        },
    },
    {
        "api": "math_api",
        "function": {"name": "hidden", "description": "", "parameters": {"type": "dict"}},
    },
    {
        "api": "ticket_api",
        "function": {"name": "other", "description": "", "parameters": {"type": "dict"}},
    },
]
TASK = {
    "id": "t1",
    "question": [[{"role": "user", "content": "add"}], [{"role": "user", "content": "again"}]],
    "path": ["MathAPI.add", "MathAPI.add", "MathAPI.add"],
    "involved_classes": ["MathAPI"],
    "excluded_function": ["hidden"],
}


def read(task=TASK):
    (program,) = bfcl.read([task], FUNCTIONS, Random(1))
    return program


def test_task_has_a_call_per_tool_and_one_that_ends_each_turn():
    program = read()
    assert program.id == "t1"
    roles = [[m["role"][0] for m in call.messages] for call in program.calls]
    assert ["".join(r) for r in roles] == ["su", "suat", "suatau", "suatauat", "suatauatat"]
    assert [bool(call.tool_s) for call in program.calls] == [True, False, True, True, False]
    assert program.calls[1].gap_s > 0, "the user thinks"
    assert program.calls[-1].gap_s == 0


def test_tools_have_the_apis_format():
    (tool,) = read().calls[0].tools
    assert tool["function"]["name"] == "add", "the interface's own, without the excluded"
    parameters = tool["function"]["parameters"]
    assert parameters["type"] == "object"
    assert parameters["properties"]["a"] == {"type": "number"}
    assert parameters["properties"]["type"] == {"type": "array", "items": {"type": "string"}}
    assert "response" not in tool["function"]


def test_calls_and_results_follow_the_schemas():
    asked, result = read().calls[1].messages[2:4]
    (called,) = asked["tool_calls"]
    assert json.loads(called["function"]["arguments"]) == {"a": "the a"}
    assert result["tool_call_id"] == called["id"]
    assert json.loads(result["content"]) == {"sum": "The sum."}


def test_an_unknown_interface_is_refused():
    with pytest.raises(ValueError, match="unknown interface Weather"):
        read({**TASK, "involved_classes": ["Weather"]})


def test_records_are_recognised():
    assert recognised(TASK) == "bfcl_multi_turn"
    assert recognised(FUNCTIONS[0]) is None
