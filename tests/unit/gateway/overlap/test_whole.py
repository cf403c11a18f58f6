"""Tool calls of whole answers equal those of streams, in every API."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft_gateway.overlap.answers import assembled
from weft_gateway.overlap.tool_calls import ToolCall, ToolCallParser
from weft_gateway.overlap.whole import calls_of


def function(name: str, arguments: str) -> dict[str, Any]:
    return {
        "id": f"id-{name}",
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def test_each_choice_of_a_chat_has_its_calls():
    calls = [function("f", '{"a": 1}'), function("g", "")]
    answer = {
        "choices": [
            {"index": 0, "finish_reason": "stop", "message": {"content": "no call"}},
            {
                "index": 1,
                "finish_reason": "tool_calls",
                "message": {"content": None, "tool_calls": calls},
            },
        ]
    }
    assert calls_of(answer) == [
        ToolCall(0, "id-f", "f", '{"a": 1}', 1),
        ToolCall(1, "id-g", "g", "{}", 1),
    ]


def test_truncated_call_is_dropped():
    calls = [function("f", '{"a": 1}'), function("g", '{"b": ')]
    answer = {"choices": [{"finish_reason": "length", "message": {"tool_calls": calls}}]}
    assert [call.name for call in calls_of(answer)] == ["f"]


@pytest.mark.parametrize("place", ["text", "content", "block", "item"])
def test_calls_in_text_are_found_if_they_name_a_tool(place):
    text = 'I call [{"name": "f", "arguments": {"a": 1}}, {"name": "unknown"}]'
    answer = {
        "text": {"choices": [{"index": 0, "text": text, "finish_reason": "stop"}]},
        "content": {"choices": [{"index": 0, "message": {"content": text}}]},
        "block": {"content": [{"type": "text", "text": text}], "stop_reason": "end_turn"},
        "item": {
            "output": [{"type": "message", "content": [{"type": "output_text", "text": text}]}]
        },
    }[place]
    assert calls_of(answer, names={"f"}) == [ToolCall(0, "", "f", '{"a": 1}')]


def test_tool_use_blocks_of_messages_are_calls():
    answer = {
        "type": "message",
        "content": [
            {"type": "thinking", "thinking": "hm"},
            {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}},
            {"type": "tool_use", "id": "t2", "name": "g", "input": {}},
        ],
        "stop_reason": "tool_use",
    }
    assert [(c.index, c.id, c.name, json.loads(c.arguments)) for c in calls_of(answer)] == [
        (1, "t1", "f", {"a": 1}),
        (2, "t2", "g", {}),
    ]
    assert [c.name for c in calls_of({**answer, "stop_reason": "max_tokens"})] == ["f"]


def test_function_items_of_responses_are_calls():
    answer = {
        "object": "response",
        "status": "completed",
        "output": [
            {"type": "reasoning", "content": []},
            {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a": 1}'},
            {"type": "function_call", "call_id": "c2", "name": "g", "arguments": ""},
        ],
    }
    assert [(c.index, c.id, c.name, c.arguments) for c in calls_of(answer)] == [
        (1, "c1", "f", '{"a": 1}'),
        (2, "c2", "g", "{}"),
    ]


NAMES = st.sampled_from(["f", "g", "weather"])
ARGUMENTS = st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=5), max_size=3)


@given(st.lists(st.tuples(NAMES, ARGUMENTS), max_size=5), st.integers(1, 7))
def test_calls_equal_those_of_the_stream(wanted, size):
    chunks: list[dict[str, Any]] = []
    for number, (name, arguments) in enumerate(wanted):
        text = json.dumps(arguments)
        head = {"index": number, **function(name, "")}
        pieces = [head] + [
            {"index": number, "function": {"arguments": text[at : at + size]}}
            for at in range(0, len(text), size)
        ]
        chunks += [
            {"choices": [{"index": 0, "delta": {"tool_calls": [piece]}}]} for piece in pieces
        ]
    parser = ToolCallParser()
    streamed = [call for chunk in chunks for call in parser.feed(chunk)]
    assert calls_of(assembled(chunks)) == streamed
    assert len(streamed) == len(wanted)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda each: (
        st.lists(each, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["choices", "message", "content", "output", "tool_calls", "type", "text", "input"]
            ),
            each,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(ANYTHING)
def test_no_input_raises(answer):
    assert isinstance(calls_of(answer), list)
