"""Contents of agents' calls."""

from __future__ import annotations

import json

import pytest
from weft_bench.peers.contents import blocks_of, body_of, known, messages_of
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


def test_token_ids_become_messages_with_one_word_per_token():
    tags = ((2, "SYSTEM_PROMPT"), (3, "USER_QUERY"), (5, "RESPONSE"), (6, "TOOL_OUTPUT"))
    found = messages_of(TraceCall(prompt_ids=(300, 301, 302, 303, 304, 305), tags=tags))
    assert [m["role"] for m in found] == ["system", "user", "assistant", "user"]
    assert [len(m["content"].split()) for m in found] == [2, 1, 2, 1]
    assert len({m["content"] for m in found}) == 4


def test_tool_output_has_the_role_of_a_tool_on_request():
    call = TraceCall(prompt_ids=(300, 301), tags=((1, "USER_QUERY"), (2, "TOOL_OUTPUT")))
    found = messages_of(call, tools=True)
    assert [m["role"] for m in found] == ["user", "tool"]
    assert [m["content"] for m in found] == [m["content"] for m in messages_of(call)]


def test_call_with_messages_keeps_them():
    messages = ({"role": "user", "content": "x"},)
    assert messages_of(TraceCall(messages=messages)) == messages
    with pytest.raises(ValueError, match="neither"):
        messages_of(TraceCall())


def test_extended_prompt_begins_with_the_blocks_of_the_earlier_one():
    def blocks(*contents: str) -> tuple[int, ...]:
        messages = [{"role": "user", "content": content} for content in contents]
        return blocks_of(body_of(TraceCall(), messages, "m", 5), 16)

    first, second = blocks("a" * 256), blocks("a" * 256, "b" * 256)
    whole = known(second, set(first))
    assert 0 < whole <= len(first) < len(second)
    assert known(second, set(second)) == len(second)
    assert known(blocks("c" * 256), set(first)) == 0


def test_known_blocks_end_at_the_first_unknown_one():
    assert known([1, 2, 3, 4], {1, 2, 4}) == 2


def test_body_has_the_recorded_length_and_the_tools():
    tool = {"type": "function", "function": {"name": "f"}}
    call = TraceCall(tools=(tool,))
    body = json.loads(body_of(call, [{"role": "user", "content": "x"}], "m", 7))
    assert (body["model"], body["max_tokens"], body["ignore_eos"]) == ("m", 7, True)
    assert body["tools"] == [tool]
    assert body["tool_choice"] == "none"
