"""Tool calls from a client's stream."""

import openai
import pytest
from support.scripted_server import CALLED, DONE, call_frames, frame, scripted
from weft_programs.stream import ToolCalls

CHUNKS = [
    {"choices": [{"index": 0, "delta": {"content": "Well."}}]},
    {"choices": [{"index": 0, "delta": {"tool_calls": [
        {"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}]}}]},
    {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
]  # fmt: skip


async def asynchronous(chunks):
    for chunk in chunks:
        yield chunk


def test_call_is_yielded_before_the_next_chunk_is_read():
    source = iter(CHUNKS)
    calls = ToolCalls(source)
    assert next(iter(calls)).name == "f"
    assert list(source) == CHUNKS[2:]


def test_callback_runs_before_the_yield_and_chunks_are_shown():
    seen = []
    calls = ToolCalls(CHUNKS, lambda call: seen.append(call.name), on_chunk=seen.append)
    for call in calls:
        assert seen[-1] == call.name
    assert seen == [*CHUNKS[:2], "f", CHUNKS[2]]
    assert calls.message.content == "Well."


@pytest.mark.anyio
async def test_async_streams_yield_calls():
    calls = ToolCalls(asynchronous(CHUNKS))
    assert [call.id async for call in calls] == ["a"]


@pytest.mark.anyio
async def test_wrong_kind_of_loop_is_an_error():
    with pytest.raises(TypeError, match="async for"):
        list(ToolCalls(asynchronous(CHUNKS)))
    with pytest.raises(TypeError, match="use `for`"):
        await anext(aiter(ToolCalls(CHUNKS)))


def read(*chunks):
    return [(call.index, call.id, call.name, call.arguments) for call in ToolCalls(chunks)]


def deltas(*pieces, finish=None):
    return {
        "choices": [{"index": 0, "delta": {"tool_calls": list(pieces)}, "finish_reason": finish}]
    }


def piece(index, arguments=None, id=None, name=None):
    return {"index": index, "id": id, "function": {"name": name, "arguments": arguments}}


def test_a_call_ends_with_its_closing_brace():
    chunks = [
        deltas(piece(0, "", "a", "f")),
        deltas(piece(0, '{"a": {"b": "}')),
        deltas(piece(0, '"}')),
        deltas(piece(0, "}")),
    ]
    assert read(*chunks[:3]) == []
    assert read(*chunks) == [(0, "a", "f", '{"a": {"b": "}"}}')]


@pytest.mark.parametrize(
    ("finish", "expected"), [("tool_calls", [(0, "a", "f", "{}")]), ("length", [])]
)
def test_a_call_without_arguments_ends_with_a_regular_answer(finish, expected):
    assert read(deltas(piece(0, "", "a", "f")), deltas(finish=finish)) == expected


def test_a_call_without_arguments_ends_where_a_later_one_has_some():
    heads = deltas(piece(0, None, "a", "f"), piece(1, None, "b", "g"))
    assert read(heads, deltas(piece(1, '{"x"'))) == [(0, "a", "f", "{}")]


def test_events_of_messages_and_responses_are_read():
    def block(kind, **more):
        return {"type": f"content_block_{kind}", "index": 1, **more}

    tool = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
    begun = block("start", content_block=tool)
    piece = block("delta", delta={"type": "input_json_delta", "partial_json": '{"a": 1}'})
    ended = {"type": "message_delta", "delta": {"stop_reason": "tool_use"}}
    assert read(begun, piece) == [(1, "t", "f", '{"a": 1}')]
    assert read(begun, ended) == [(1, "t", "f", "{}")]
    item = {"type": "function_call", "call_id": "t", "name": "f", "arguments": "{}"}
    done = {"type": "response.output_item.done", "output_index": 2, "item": item}
    assert read(done) == [(2, "t", "f", "{}")]


def test_stream_of_the_real_client_is_read():
    def answer(asked):
        yield frame({"role": "assistant", "content": ""})
        yield from call_frames(0, "f", '{"a": 1}')
        yield from call_frames(1, "g", "{}")
        yield from (CALLED, DONE)

    with scripted(answer) as server, openai.OpenAI(base_url=server.url, api_key="x") as client:
        stream = client.chat.completions.create(model="tiny", messages=[], stream=True)
        calls = ToolCalls(stream)
        assert [(c.name, c.arguments) for c in calls] == [("f", '{"a": 1}'), ("g", "{}")]
        assert calls.message.finish_reason == "tool_calls"
