"""The variants of calls that clients send."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from weft_bench.micro.lineage.data import RecordedCall, body_of
from weft_bench.micro.lineage.variants import VARIANTS

ANSWER = {"choices": [{"message": {"role": "assistant", "content": "a"}}]}
FUNCTION = {"name": "f", "arguments": '{"a": 1, "b": 2}'}
BODY = {
    "model": "m",
    "messages": [
        {"role": "user", "content": "u"},
        {"role": "assistant", "content": None, "tool_calls": [{"function": FUNCTION}]},
    ],
}
CALLS = [RecordedCall(float(n), 0.6, body_of(BODY), body_of(ANSWER)) for n in range(2)]


@pytest.mark.parametrize("name", VARIANTS)
def test_calls_keep_their_order_and_fields(name):
    made = VARIANTS[name](CALLS)
    assert [call.at_s for call in made] == sorted(call.at_s for call in made)
    assert all(json.loads(call.body).keys() == BODY.keys() for call in made)


def test_reasoning_is_in_a_field_or_in_the_text():
    messages = [
        json.loads(call.answer)["choices"][0]["message"]
        for call in VARIANTS["reasoning dropped"](CALLS)
    ]
    assert messages[0]["content"].startswith("<think>")
    assert messages[0]["content"].endswith("a")
    assert "reasoning_content" in messages[1]


def test_keys_are_reversed_and_texts_are_parts():
    same, turned = VARIANTS["keys reordered"](CALLS)
    assert same == CALLS[0]
    body = json.loads(turned.body)
    assert list(body) == ["model", "messages"]
    assert body["messages"][0]["content"] == [{"text": "u", "type": "text"}]
    arguments = body["messages"][1]["tool_calls"][0]["function"]["arguments"]
    assert list(json.loads(arguments).items()) == [("b", 2), ("a", 1)]


def test_both_variants_of_repetition_send_every_call_twice():
    broken = VARIANTS["repeated"](CALLS)
    assert [call.broken for call in broken] == [True, False] * 2
    assert [call.answer is None for call in broken] == [True, False] * 2
    twice = VARIANTS["asked twice"](CALLS)
    assert len(twice) == 4
    assert all(call.answer for call in twice)
    for made in (broken, twice):
        assert all(a.at_s + a.took_s < b.at_s for a, b in pairwise(made))
    assert all(c.answer is None and not c.broken for c in VARIANTS["answers unseen"](CALLS))


def test_only_the_ids_of_tool_calls_continue():
    turns = [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a long answer"}]
    bodies = [{"model": "m", "messages": turns[:length]} for length in (1, 2)]
    bodies[1]["messages"] = [*turns, {"role": "user", "content": "v"}]
    calls = [
        RecordedCall(float(n), 0.6, body_of(body), body_of(ANSWER)) for n, body in enumerate(bodies)
    ]
    first, second = VARIANTS["clock and ids"](calls)
    said = json.loads(first.answer)["choices"][0]["message"]
    messages = json.loads(second.body)["messages"]
    assert messages[2] == said
    assert (messages[3]["tool_call_id"], messages[3]["content"]) == (
        said["tool_calls"][0]["id"],
        "v",
    )
    assert messages[0] != json.loads(first.body)["messages"][0]
    prompt = [RecordedCall(0.0, 1.0, body_of({"model": "m", "prompt": "p"}), body_of(ANSWER))]
    assert VARIANTS["clock and ids"](prompt) == prompt
