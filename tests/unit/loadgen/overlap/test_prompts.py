"""Texts for the shape of an agent's requests."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from weft_bench.overlap.prompts import ready, tools, words
from weft_bench.overlap.shape import ShapeCall, ShapeRequest, ShapeTurn, generate

UNIT = 2000.0
REQUESTS = generate(5, 40)


def size(messages):
    return sum(len(message["content"].split()) for message in messages)


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda r: str(r.number))
def test_prompts_have_the_sizes_and_shares_of_the_shape(request_):
    for turn, shape in zip(ready(5, request_, UNIT), request_.turns, strict=True):
        # Rounding is per message, and a system prompt has at least a few words.
        slack = 2 * len(turn.messages) + 16
        assert size(turn.messages) == pytest.approx(shape.size * UNIT, abs=slack)
        assert size(turn.outputs) == pytest.approx(shape.outputs * UNIT, abs=slack)


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda r: str(r.number))
def test_conversations_are_complete(request_):
    turns = ready(5, request_, UNIT)
    for turn in turns:
        asked = [c["id"] for m in turn.messages for c in m.get("tool_calls", ())]
        answered = [m["tool_call_id"] for m in turn.messages if m["role"] == "tool"]
        assert asked == answered
        assert len(set(asked)) == len(asked)
        assert [m["role"] for m in turn.messages[:2]] == ["system", "user"]
    for turn, following in pairwise(turns):
        sent = [c["function"] for c in following.independent[-1]["tool_calls"]]
        written = json.loads(turn.answer)
        assert [c["name"] for c in sent] == [c["name"] for c in written]
        assert [json.loads(c["arguments"]) for c in sent] == [c["arguments"] for c in written]
        assert len(following.outputs) == len(written)
    assert turns[-1].answer == ""


def test_calls_use_existing_tools():
    names = {tool["function"]["name"] for tool in tools()}
    assert len(names) == 20
    called = {
        call["name"]
        for request in REQUESTS
        for turn in ready(5, request, UNIT)[:-1]
        for call in json.loads(turn.answer)
    }
    assert called <= names


def test_equal_system_prompts_share_a_prefix():
    calls = (ShapeCall(3, 1.0),)
    small, large = (
        ShapeRequest(
            n, (ShapeTurn("beginning 1", s, 0.0, calls), ShapeTurn("after 3", s, s / 4)), 0.3, 5
        )
        for n, s in ((0, 0.5), (1, 1.5))
    )
    for one, other in zip(ready(0, small, UNIT), ready(0, large, UNIT), strict=True):
        mine, theirs = one.messages[0]["content"], other.messages[0]["content"]
        assert theirs.startswith(mine)
        assert one.messages[1]["content"] not in other.messages[1]["content"]


def test_texts_depend_only_on_their_purpose():
    assert words("a", 50).startswith(words("a", 10))
    assert words("a", 10) != words("b", 10)
    assert ready(5, REQUESTS[0], UNIT) == ready(5, REQUESTS[0], UNIT)
    assert ready(5, REQUESTS[0], UNIT) != ready(6, REQUESTS[0], UNIT)
