"""The canonical form of messages."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from weft_gateway.programs.lineage.canonical import messages_of, root_of

CALL = {"name": "f", "arguments": '{"b": 1, "a": {"d": 2, "c": "ü"}}'}
PLAIN = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hi there", "tool_calls": [{"id": "1", "function": CALL}]},
        {"role": "tool", "tool_call_id": "1", "content": "42"},
    ],
}
ANTHROPIC = {
    "model": "m",
    "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "Hello"}]},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "x"},
            {"type": "redacted_thinking", "data": "x"},
            {"type": "text", "text": "Hi there"},
            {"type": "tool_use", "id": "2", "name": "f",
             "input": {"a": {"c": "ü", "d": 2}, "b": 1}},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "2", "content": [{"type": "text", "text": "42"}]}
        ]},
    ],
}  # fmt: skip
RESPONSES = {
    "model": "m",
    "instructions": "Be brief.",
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "Hello"}]},
        {"type": "reasoning", "summary": [], "id": "rs_1"},
        {"type": "message", "role": "assistant", "content": [
            {"type": "output_text", "text": "Hi there", "annotations": []}
        ]},
        {"type": "function_call", "call_id": "3", **CALL},
        {"type": "function_call_output", "call_id": "3", "output": "42"},
    ],
}  # fmt: skip


def atoms(body: dict[str, Any]) -> list[tuple[str, str]]:
    return [atom for _, message in messages_of(body) for atom in message]


@pytest.mark.parametrize("body", [ANTHROPIC, RESPONSES], ids=["anthropic", "responses"])
def test_apis_have_the_same_canonical_form(body):
    assert atoms(body) == atoms(PLAIN)


@pytest.mark.parametrize(
    "content",
    [
        "<think>Hm. </think>\n\nHi there",
        "Hm, the template opened it.</think>Hi there",
        [{"type": "text", "text": "Hi "}, {"type": "text", "text": "there\n"}],
        ["Hi there"],
    ],
)
def test_reasoning_spaces_and_parts_do_not_matter(content):
    message = {"role": "assistant", "content": content, "reasoning_content": "Hm.", "refusal": None}
    plain = {"role": "assistant", "content": "Hi there"}
    assert atoms({"messages": [message]}) == atoms({"messages": [plain]})


def test_reasoning_tags_of_users_are_kept():
    assert "</think>" in atoms({"messages": [{"role": "user", "content": "a</think>b"}]})[0][1]


@pytest.mark.parametrize("nothing", [None, "", "  ", []])
def test_blank_messages_are_dropped_except_tool_results(nothing):
    assert atoms({"messages": [{"role": "assistant", "content": nothing}]}) == []
    assert atoms({"messages": [{"role": "tool", "content": nothing}]}) == [("r", "")]


def test_legacy_function_call_is_read():
    old = {"role": "assistant", "content": None, "function_call": CALL}
    new = {"role": "assistant", "tool_calls": [{"function": CALL}]}
    assert atoms({"messages": [old]}) == atoms({"messages": [new]})


def test_images_count_at_a_constant_cost():
    def picture(data: str) -> dict[str, Any]:
        part = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
        return {"messages": [{"role": "user", "content": [part]}]}

    one, other = atoms(picture("A" * 10**6)), atoms(picture("A" * (10**6 - 1) + "B"))
    assert one != other
    assert len(one[0][1]) < 10_000


def test_root_consists_of_model_and_tools():
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"a": 1, "b": 2}}}]
    turned = [{"function": {"parameters": {"b": 2, "a": 1}, "name": "f"}, "type": "function"}]
    body = {"model": "m", "tools": tools}
    assert root_of(body) == root_of({"tools": turned, "model": "m"})
    assert len({root_of(body), root_of({"model": "m"}), root_of({"model": "n"})}) == 3


def test_prompt_ends_before_its_trailing_spaces():
    assert atoms({"prompt": "Thought: "}) == [("u", "Thought: ")]
    assert atoms({"prompt": [1, 2, 3]}) == [("u", "1 2 3")]
    assert atoms({"prompt": ["a", [4, 5]]}) == [("u", "a"), ("u", "4 5")]
    assert atoms({"prompt": " "}) == []


LEAF = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
KEYS = ("messages", "input", "prompt", "system", "tools", "model", "role", "content", "tool_calls")
NAMES = st.sampled_from((*KEYS, "type", "text", "function", "arguments", "function_call"))
JSON = st.recursive(
    LEAF, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=3)
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from(KEYS), JSON, max_size=4))
def test_malformed_messages_do_not_raise(body):
    messages_of(body)
    root_of(body)


@pytest.mark.parametrize("odd", [[], {}, [1], {"a": 1}])
def test_types_and_roles_of_any_type_do_not_raise(odd):
    parts = [{"type": odd, "text": "a"}, {"type": "text", "text": "b"}]
    messages = [{"role": odd, "content": parts}, {"type": odd, "role": "user", "content": "c"}]
    assert atoms({"messages": messages, "system": parts})[-1] == ("u", "c")
    assert ("u", "b") in atoms({"input": [{"role": odd, "content": parts}]})


@pytest.mark.parametrize("depth", [200, 300, 1000])
@pytest.mark.parametrize("form", ["value", "text"])
def test_too_deep_messages_do_not_raise(depth, form):
    text = '{"a":' * depth + "1" + "}" * depth
    arguments = text if form == "text" else orjson.loads(text)
    call = {"function": {"name": "f", "arguments": arguments}}
    part = {"type": "input_file", "file": orjson.loads(text)}
    messages = [{"role": "assistant", "tool_calls": [call]}, {"role": "user", "content": [part]}]
    (kind, said), _ = atoms({"messages": messages})
    assert (kind, said) == ("c", f"f {text}" if form == "text" or depth < 254 else "f ")
    root_of({"tools": [part]})


def test_invalid_json_arguments_are_unchanged():
    call = {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": '{"a":'}}]}
    assert atoms({"messages": [call]}) == [("c", 'f {"a":')]
    deep = json.dumps({"name": "f", "arguments": "[" * 2000 + "]" * 2000})
    assert atoms({"messages": [{"role": "assistant", "function_call": json.loads(deep)}]})
