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


def test_calls_in_text_are_found_on_request():
    text = {"choices": [{"index": 0, "delta": {"content": '[{"name": "f", "arguments": {}}]'}}]}
    assert list(ToolCalls([text])) == []
    assert [c.name for c in ToolCalls([text], in_text=True)] == ["f"]
    assert list(ToolCalls([text], in_text=True, names={"g"})) == []


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
