"""Atoms of answers, of every API, whole and streamed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from weft_gateway.overlap import answers
from weft_gateway.overlap.answers import MAX_ANSWER_BYTES, condensed, parse_answer
from weft_gateway.programs.lineage.canonical import said_in


def read_answer(body: bytes, stream: bool) -> list[Any]:
    return said_in(parse_answer(body, stream))


EXPECTED = [[("a", "Hi there"), ("c", 'f {"a":1,"b":2}')]]
ARGUMENTS = '{"b": 2, "a": 1}'


def sse(*events: dict[str, Any]) -> bytes:
    return (
        b"".join(b"event: x\ndata: " + json.dumps(event).encode() + b"\n\n" for event in events)
        + b"data: [DONE]\n\n"
    )


def delta(index: int = 0, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": index, "delta": fields}]}


def tool(**function: Any) -> list[dict[str, Any]]:
    return [{"index": 0, "function": function}]


OUTPUT = [
    {"type": "reasoning", "summary": []},
    {"type": "message", "role": "assistant", "content": [
        {"type": "output_text", "text": "Hi there"}
    ]},
    {"type": "function_call", "call_id": "1", "name": "f", "arguments": ARGUMENTS},
]  # fmt: skip
BLOCKS = [
    {"type": "thinking", "thinking": "Hm."},
    {"type": "text", "text": "Hi there"},
    {"type": "tool_use", "id": "1", "name": "f", "input": {"a": 1, "b": 2}},
]
WHOLE = {
    "chat": {"choices": [{"message": {"role": "assistant", "content": "Hi there", "tool_calls": [
        {"id": "1", "function": {"name": "f", "arguments": ARGUMENTS}}
    ]}}]},
    "responses": {"output": OUTPUT},
    "anthropic": {"type": "message", "content": BLOCKS},
}  # fmt: skip
STREAMS = {
    "chat": sse(
        delta(role="assistant", content="", reasoning_content="Hm."),
        delta(content="Hi "),
        delta(content="there"),
        delta(tool_calls=tool(name="f", arguments="")),
        delta(tool_calls=tool(arguments=ARGUMENTS[:5])),
        delta(tool_calls=tool(arguments=ARGUMENTS[5:])),
        {"choices": [], "usage": {}},
    ),
    "responses": sse(
        {"type": "response.output_text.delta", "delta": "Hi"},
        {"type": "response.completed", "response": {"output": OUTPUT}},
    ),
    "anthropic": sse(
        {"type": "message_start", "message": {"content": []}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking"}},
        {"type": "content_block_delta", "index": 0, "delta": {"thinking": "Hm."}},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 1, "delta": {"text": "Hi "}},
        {"type": "content_block_delta", "index": 1, "delta": {"text": "there"}},
        {
            "type": "content_block_start",
            "index": 2,
            "content_block": {"type": "tool_use", "name": "f", "input": {}},
        },
        {"type": "content_block_delta", "index": 2, "delta": {"partial_json": ARGUMENTS[:4]}},
        {"type": "content_block_delta", "index": 2, "delta": {"partial_json": ARGUMENTS[4:]}},
        {"type": "content_block_stop", "index": 2},
    ),
}


@pytest.mark.parametrize("api", WHOLE)
def test_whole_answer_gives_its_atoms(api):
    assert read_answer(json.dumps(WHOLE[api]).encode(), stream=False) == EXPECTED


@pytest.mark.parametrize("api", STREAMS)
def test_streamed_answer_gives_its_atoms(api):
    assert read_answer(STREAMS[api], stream=True) == EXPECTED


def test_each_choice_is_a_separate_answer():
    stream = sse(delta(1, content="b"), delta(0, content="a"), delta(1, content="c"))
    assert read_answer(stream, stream=True) == [[("a", "a")], [("a", "bc")]]


def test_completions_text_is_one_atom():
    body = json.dumps({"choices": [{"text": " I need"}]}).encode()
    assert read_answer(body, stream=False) == [[("t", " I need")]]
    assert read_answer(
        sse({"choices": [{"text": " I"}]}, {"choices": [{"text": " need"}]}), True
    ) == [[("t", " I need")]]


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b'{"error": {}}', b'{"choices": [null]}', b'{"choices": 1}']
)
def test_invalid_answer_has_no_atoms(body):
    assert read_answer(body, stream=False) == []
    assert read_answer(b"data: " + body + b"\n\n", stream=True) == []


def test_very_long_answer_is_not_read():
    body = json.dumps({"choices": [{"message": {"content": "x" * MAX_ANSWER_BYTES}}]}).encode()
    assert read_answer(body, stream=False) == []


@settings(deadline=None)
@given(st.binary(max_size=200), st.booleans())
def test_no_input_raises(body, stream):
    read_answer(body, stream)


@pytest.mark.parametrize("api", STREAMS)
def test_truncated_stream_does_not_raise(api):
    for end in range(0, len(STREAMS[api]), 7):
        read_answer(STREAMS[api][:end], stream=True)


PIECES = st.lists(
    st.tuples(
        st.sampled_from(("content", "reasoning_content", "arguments", "text", "both")),
        st.integers(0, 1),
        st.text(alphabet='ab"\\\n\u00e9\U0001f600:{},', max_size=4),
    ),
    max_size=30,
)


def event_of(key: str, index: int, text: str) -> dict[str, Any]:
    if key == "arguments":
        calls = [{"index": index, "function": {"arguments": text}}]
        return {"id": "x", "choices": [{"index": 0, "delta": {"tool_calls": calls}}]}
    if key == "text":
        return {"id": "x", "choices": [{"index": index, "text": text}]}
    said = {"content": text, "reasoning_content": text} if key == "both" else {key: text}
    return {"id": "x", "choices": [{"index": index, "delta": said, "finish_reason": None}]}


@settings(deadline=None, max_examples=300)
@given(PIECES, st.booleans())
def test_condensed_stream_has_the_same_atoms(pieces, plain):
    stream = sse(*(event_of(*piece) for piece in pieces))
    stream = stream.replace(b"event: x\n", b"") if plain else stream
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(answers, "_LONG_STREAM", 0)
        condensed_answer = read_answer(stream, stream=True)
        patch.setattr(answers, "condensed", lambda given: given)
        assert read_answer(stream, stream=True) == condensed_answer


def test_text_events_are_merged():
    words = [delta(content=f"word{number} ") for number in range(100)]
    stream = sse(delta(role="assistant", content=""), *words, delta(tool_calls=tool(name="f")))
    assert condensed(stream).count(b"data:") <= 5
    assert read_answer(stream, stream=True)[0][0][1].endswith("word98 word99")
