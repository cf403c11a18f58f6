"""Reading the answer of a stream, for every chunking."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft_gateway.overlap.answers import parse_answer


def sse(*chunks) -> bytes:
    return b"".join(b"data: %b\n\n" % json.dumps(chunk).encode() for chunk in chunks)


def delta(index=0, **fields):
    return {"choices": [{"index": index, "delta": fields}]}


CHAT = (
    sse(
        delta(role="assistant", content=""),
        delta(content="Let me "),
        delta(reasoning_content="hm"),
        delta(content="look."),
        delta(tool_calls=[{"index": 0, "id": "c1", "function": {"name": "f", "arguments": ""}}]),
        delta(tool_calls=[{"index": 0, "function": {"arguments": '{"a"'}}]),
        delta(index=1, content="other"),
        delta(tool_calls=[{"index": 0, "function": {"arguments": ": 1}"}}]),
    )
    + b": ping\n\ndata: [DONE]\n\n"
)
CHAT_BODY = {
    "choices": [
        {
            "message": {
                "role": "assistant",
                "content": "Let me look.",
                "tool_calls": [
                    {
                        "id": "c1",
                        "type": "function",
                        "function": {"name": "f", "arguments": '{"a": 1}'},
                    }
                ],
            }
        },
        {"message": {"role": "assistant", "content": "other"}},
    ]
}
MESSAGES = sse(
    {"type": "message_start", "message": {"role": "assistant"}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}},
    {
        "type": "content_block_start",
        "index": 1,
        "content_block": {"type": "tool_use", "id": "t", "name": "f", "input": {}},
    },
    {"type": "content_block_delta", "index": 1, "delta": {"partial_json": '{"a":'}},
    {"type": "content_block_delta", "index": 1, "delta": {"partial_json": "1}"}},
    {"type": "message_stop"},
)
MESSAGES_BODY = {
    "role": "assistant",
    "content": [
        {"type": "text", "text": "Hi"},
        {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}},
    ],
}
TEXT = sse({"choices": [{"index": 0, "text": "a "}]}, {"choices": [{"index": 0, "text": "b"}]})
TEXT_BODY = {"choices": [{"text": "a b"}]}
OUTPUT = [{"type": "message", "content": [{"type": "output_text", "text": "x"}]}]
RESPONSE = sse(
    {"type": "response.output_text.delta", "delta": "x"},
    {"type": "response.completed", "response": {"output": OUTPUT}},
)


@pytest.mark.parametrize(
    ("stream", "body"),
    [
        (CHAT, CHAT_BODY),
        (MESSAGES, MESSAGES_BODY),
        (TEXT, TEXT_BODY),
        (RESPONSE, {"output": OUTPUT}),
        (b"", {"choices": []}),
    ],
)
def test_stream_gives_its_answer(stream, body):
    assert parse_answer(stream, stream=True) == body


@given(
    st.lists(
        st.recursive(
            st.none() | st.integers() | st.text(max_size=5),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from(
                        ["choices", "delta", "index", "type", "content_block", "tool_calls", "text"]
                    ),
                    inner | st.sampled_from(["content_block_start", "content_block_delta"]),
                    max_size=4,
                )
            ),
            max_leaves=12,
        ),
        max_size=5,
    )
)
def test_no_input_raises(chunks):
    parse_answer(sse(*chunks), stream=True)
