"""Prefix hashes of prompts, read from bodies."""

from __future__ import annotations

import pytest
from weft_gateway.engine.prefixes import STEP_BYTES, prefix_of

TEXT = "The instructions of the agent at work. " * 300
TOOLS = [{"type": "function", "function": {"name": "look", "description": TEXT}}]


def marks(body, model="m", salt="tenant"):
    found = prefix_of(body, model, salt, 4.0)
    return () if found is None else found.marks


def chat(*texts, **more):
    roles = ("system", "user", "assistant", "user")
    said = [{"role": r, "content": t} for r, t in zip(roles, texts, strict=False)]
    return {"model": "m", "messages": said, **more}


def common(one, other):
    return sum(a == b for a, b in zip(one, other, strict=False))


@pytest.mark.parametrize(
    "body",
    [
        lambda text, end: chat(text, end),
        lambda text, end: {"system": text, "messages": [{"role": "user", "content": end}]},
        lambda text, end: {"instructions": text, "input": end},
        lambda text, end: {"input": [{"role": "user", "content": f"{text} {end}"}]},
        lambda text, end: {"prompt": text + end},
        lambda text, end: {"prompt": [*map(ord, text), *map(ord, end)]},
        lambda text, end: chat(end, tools=TOOLS),
    ],
    ids=["chat", "anthropic", "responses", "items", "text", "tokens", "tools"],
)
def test_equal_prompt_prefixes_have_equal_marks_in_every_api(body):
    one, other = marks(body(TEXT, "How?" * 2000)), marks(body(TEXT, "Why?" * 2000))
    shared = common(one, other)
    assert len(TEXT) // STEP_BYTES - 1 <= shared < len(one)
    assert one[:shared] == other[:shared]
    assert not set(one[shared:]) & set(other[shared:])


def test_members_outside_the_prompt_do_not_matter():
    assert marks(chat(TEXT, "How?")) == marks(
        {"stream": True, "session_id": "x", "temperature": 0.5} | chat(TEXT, "How?", user="me")
    )


def test_marks_differ_by_tools_salt_tenant_and_model():
    plain = marks(chat(TEXT))
    for other in (
        marks(chat(TEXT, tools=TOOLS)),
        marks(chat(TEXT, cache_salt="mine")),
        marks(chat(TEXT), salt="another"),
        marks(chat(TEXT), salt=""),
        marks(chat(TEXT), model="n"),
    ):
        assert not set(plain) & set(other)
    assert marks(chat(TEXT, cache_salt="mine")) == marks(chat(TEXT, cache_salt="mine"))
    assert marks(chat(TEXT, cache_salt=["not", "one"])) == plain


def test_step_tokens_follow_the_bytes_per_token():
    assert prefix_of(chat(TEXT), "m", "", 4.0).step_tokens == STEP_BYTES // 4
    assert prefix_of(chat(TEXT), "m", "", 1e9).step_tokens == 1


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"messages": []},
        chat("short"),
        {"messages": None, "tools": []},
        {"messages": [None, 3, "text"]},
        chat(TEXT, previous_response_id="resp_1"),
        chat("\ud800" * 3000),
        {"prompt": 2**70},
    ],
)
def test_prompt_without_a_readable_prefix_has_none(body):
    assert prefix_of(body, "m", "", 4.0) is None


def test_too_deep_prompt_has_no_prefix():
    deep: list = [TEXT]
    for _ in range(2000):
        deep = [deep]
    assert prefix_of({"input": deep}, "m", "", 4.0) is None


def test_only_the_beginning_of_a_long_conversation_is_read():
    said = [{"role": "user", "content": TEXT} for _ in range(100)]
    whole = marks({"messages": said})
    assert len(whole) == 128
    said[-1] = {"role": "user", "content": object()}
    assert marks({"messages": said}) == whole
