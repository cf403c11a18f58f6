"""Contents of agents' calls."""

from __future__ import annotations

import json

import pytest
from weft_bench.agents.contents import body_of, messages_of
from weft_bench.workloads.schema import Part, TraceCall


@pytest.mark.engine
def test_a_word_is_one_token_of_the_demo_model(tmp_path):
    from weft_deploy.local.demo import corpus, tokenizer
    from weft_deploy.local.demo_model import VOCABULARY

    call = TraceCall(parts=(Part("a", 5000, "user"),))
    (message,) = messages_of(call)
    encoded = tokenizer.train(corpus.pieces(), VOCABULARY).encode(message["content"])
    assert len(encoded.ids) == 5000
    assert len(set(encoded.ids)) > 200


def test_parts_become_messages_with_one_word_per_token():
    kinds = ("system", "user", "assistant", "tool")
    parts = tuple(Part(kind, number, kind) for number, kind in enumerate(kinds, 1))
    found = messages_of(TraceCall(parts=parts))
    assert [m["role"] for m in found] == ["system", "user", "assistant", "user"]
    assert [len(m["content"].split()) for m in found] == [1, 2, 3, 4]
    (shorter,) = messages_of(TraceCall(parts=(Part("tool", 3, "tool"),)))
    assert found[-1]["content"].startswith(shorter["content"])


def test_call_with_messages_keeps_them():
    messages = ({"role": "user", "content": "x"},)
    assert messages_of(TraceCall(messages=messages)) == messages
    with pytest.raises(ValueError, match="neither"):
        messages_of(TraceCall())


def test_body_has_the_recorded_length_and_the_tools():
    tool = {"type": "function", "function": {"name": "f"}}
    call = TraceCall(tools=(tool,))
    body = json.loads(body_of(call, [{"role": "user", "content": "x"}], "m", 7))
    assert (body["model"], body["max_tokens"], body["ignore_eos"]) == ("m", 7, True)
    assert body["tools"] == [tool]
    assert body["tool_choice"] == "none"
