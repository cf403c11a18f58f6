"""The callback for a whole program's tool calls."""

import asyncio
import threading

import httpx
import pytest
from support.scripted_server import scripted
from support.waiting import DEADLINE_S
from weft_gateway.overlap.dispatch import frame
from weft_gateway.overlap.tool_calls import ToolCall as Sent
from weft_programs import ToolCall
from weft_programs.events import CallbackStream

pytestmark = pytest.mark.anyio

CALLS = [ToolCall(i, f"c{i}", "f", '{"a": 1}') for i in range(3)]
FRAMES = [
    frame(Sent(call.index, call.id, call.name, call.arguments), {"choices": []}) for call in CALLS
]


async def test_each_call_is_reported_while_the_stream_is_open():
    finish = threading.Event()
    seen: asyncio.Queue[ToolCall] = asyncio.Queue()

    def answer(asked):
        yield b": hello\n\n"
        yield FRAMES[0][:20]
        yield FRAMES[0][20:] + b"event: other\ndata: {}\n\n" + FRAMES[1]
        yield b"event: tool_call_dispatch\ndata: {\n\n"
        yield FRAMES[2]
        assert finish.wait(DEADLINE_S)

    with scripted(answer) as server:
        stream = CallbackStream(f"{server.url}/events", {"authorization": "x"}, seen.put_nowait)
        async with asyncio.timeout(DEADLINE_S), stream:
            assert [await seen.get() for _ in CALLS] == CALLS
            finish.set()
            assert await stream.ended is None
    assert server.asked[0].headers["authorization"] == "x"


async def test_exit_ends_an_open_stream():
    leave = threading.Event()

    def answer(asked):
        yield b": hello\n\n"
        assert leave.wait(DEADLINE_S)

    with scripted(answer) as server:
        async with asyncio.timeout(DEADLINE_S), CallbackStream(server.url, {}, print) as stream:
            assert not stream.ended.done()
        assert stream.ended.cancelled()
        leave.set()


async def test_callback_error_ends_the_stream_and_is_kept():
    def fails(call):
        raise KeyError(call.name)

    with scripted(lambda asked: FRAMES) as server:
        async with asyncio.timeout(DEADLINE_S), CallbackStream(server.url, {}, fails) as stream:
            assert isinstance(await stream.ended, KeyError)


async def test_server_without_the_event_stream_is_an_error():
    with scripted(lambda asked: (404, {})) as server, pytest.raises(httpx.HTTPStatusError):
        async with CallbackStream(server.url, {}, print):
            raise AssertionError("entered")
