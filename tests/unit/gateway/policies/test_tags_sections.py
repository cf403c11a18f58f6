"""Sections of request bodies."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from weft_gateway.model.tag import Tag
from weft_gateway.policies.tags_sections import PREAMBLE, is_otherwise, sections, visible

TOOL = {"type": "function", "function": {"name": "look", "parameters": {}}}

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)


def outline(body: dict[str, Any]) -> list[tuple[str, int]]:
    return [(section.tag.name, section.message) for section in sections(body)]


def test_roles_become_tags_and_tools_join_the_system_prompt() -> None:
    call = {"id": "1", "function": {"name": "look", "arguments": '{"at": 1}'}}
    body = {
        "tools": [TOOL],
        "messages": [
            {"role": "system", "content": "s"},
            {"role": "user", "content": "u"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "content": "t"},
            {"role": "assistant", "content": "a"},
        ],
    }
    assert outline(body) == [
        ("SYSTEM_PROMPT", 0), ("SYSTEM_PROMPT", PREAMBLE), ("USER_QUERY", 1), ("RESPONSE", 2),
        ("TOOL_OUTPUT", 3), ("RESPONSE", 4),
    ]  # fmt: skip
    found = sections(body)
    assert found[1].extras == found[3].extras == 1
    assert found[3].text == 'look{"at": 1}'


@pytest.mark.parametrize("messages", [[{"role": "user", "content": "u"}], [{"role": "system"}]])
def test_tools_are_never_lost(messages: list[dict[str, Any]]) -> None:
    found = sections({"messages": messages, "tools": [TOOL]})
    assert [s.message for s in found if s.extras] == [PREAMBLE]


def test_later_system_message_is_a_query() -> None:
    roles = ["developer", "system", "user", "system"]
    body = {"messages": [{"role": role, "content": "x"} for role in roles]}
    assert [tag for tag, _ in outline(body)] == [*["SYSTEM_PROMPT"] * 2, *["USER_QUERY"] * 2]


def test_tool_results_of_anthropic_messages_precede_the_text() -> None:
    body = {
        "system": [{"type": "text", "text": "s"}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "u"}]},
            {"role": "assistant", "content": [{"type": "tool_use", "name": "look", "input": {}}]},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "and"},
                    {"type": "tool_result", "content": [{"type": "text", "text": "seen"}]},
                    {"type": "image", "source": {}},
                ],
            },
            {"role": "user", "content": [{"type": "tool_result", "content": "only"}]},
        ],
    }
    assert [(s.tag.name, s.message, s.text, s.extras, s.media) for s in sections(body)] == [
        ("SYSTEM_PROMPT", PREAMBLE, "s", 0, 0),
        ("USER_QUERY", 0, "u", 0, 0),
        ("RESPONSE", 1, "look{}", 1, 0),
        ("TOOL_OUTPUT", 2, "seen", 0, 0),
        ("USER_QUERY", 2, "and", 0, 1),
        ("TOOL_OUTPUT", 3, "only", 0, 0),
    ]


def test_items_of_the_responses_api_become_sections() -> None:
    body = {
        "instructions": "s",
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "u"}]},
            {"type": "reasoning", "summary": []},
            {"type": "function_call", "name": "look", "arguments": "{}"},
            {"type": "function_call_output", "output": "t"},
        ],
    }
    assert outline(body) == [
        ("SYSTEM_PROMPT", PREAMBLE), ("USER_QUERY", 0), ("RESPONSE", 2), ("TOOL_OUTPUT", 3)
    ]  # fmt: skip
    assert outline({"input": "u"}) == [("USER_QUERY", 0)]


@pytest.mark.parametrize(
    "body",
    [{}, {"prompt": "p"}, {"messages": []}, {"messages": "m"},
     {"input": [{"role": "user", "content": "u"}], "previous_response_id": "resp_1"},
     {"messages": [{"role": "user", "content": "u"}], "truncate_prompt_tokens": 9}],
)  # fmt: skip
def test_unknown_structure_has_no_sections(body: dict[str, Any]) -> None:
    assert sections(body) == []


def test_keys_differ_by_content_and_role() -> None:
    def key(role: str, content: str) -> int:
        return sections({"messages": [{"role": role, "content": content}]})[0].key

    assert key("user", "a" * 9) == key("user", "a" * 9)
    assert key("user", "a") != key("user", "b")
    assert key("user", "a") != key("assistant", "a")
    long = "x" * 50_000
    assert key("user", long) == key("user", "x" * 50_000)
    assert key("user", long) != key("user", long + "x")
    assert key("user", long) != key("user", long[:-1] + "y")


@settings(deadline=None)
@given(
    st.fixed_dictionaries(
        {},
        optional={
            name: ANYTHING
            | st.lists(
                st.fixed_dictionaries(
                    {},
                    optional={
                        "role": st.sampled_from(["user", "tool", "system"]) | ANYTHING,
                        "content": ANYTHING,
                        "type": ANYTHING,
                        "tool_calls": ANYTHING,
                    },
                ),
                max_size=3,
            )
            for name in ("messages", "input", "system", "tools", "instructions")
        },
    )
)
def test_no_body_raises(body: dict[str, Any]) -> None:
    for section in sections(body):
        assert isinstance(section.text, str)
        assert Tag.NONE < section.tag < Tag.PARTIAL_PREFILL


def asked(*pictures: dict[str, Any]) -> int:
    content = [{"type": "text", "text": "What is this?"}, *pictures]
    (section,) = sections({"messages": [{"role": "user", "content": content}]})
    assert section.text == "What is this?"
    assert section.media == len(pictures)
    return section.key


def test_image_keys_differ_and_images_are_no_text() -> None:
    def chat(data: str) -> dict[str, Any]:
        return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}

    def anthropic(data: str) -> dict[str, Any]:
        return {"type": "image", "source": {"type": "base64", "data": data}}

    def responses(data: str) -> dict[str, Any]:
        return {"type": "input_image", "image_url": f"data:image/png;base64,{data}"}

    one, two = "A" * 500_000, "A" * 250_000 + "B" + "A" * 249_999
    for picture in (chat, anthropic, responses):
        keys = [asked(), asked(picture(one)), asked(picture(two)), asked(*[picture(one)] * 2)]
        assert len(set(keys)) == 4
        assert asked(picture(one)) == keys[1]


@pytest.mark.parametrize(
    "more", [{"previous_response_id": "resp_1"}, {"conversation": "c"}, {"documents": [{}]}]
)
def test_partly_visible_prompt_has_visible_sections_only(more: dict[str, Any]) -> None:
    body = {"input": "and then?"}
    assert not is_otherwise(body)
    assert visible(body) == sections(body) != []
    assert is_otherwise(body | more)
    assert sections(body | more) == []
    assert visible(body | more) == visible(body)
    assert visible({"prompt": "raw"}) == []
