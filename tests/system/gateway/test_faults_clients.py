"""Broken streams at the OpenAI and Anthropic clients. The clients raise an APIError, without JSON
errors from partial frames and without short answers that look complete.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import anthropic
import openai
import pytest

pytestmark = [pytest.mark.system, pytest.mark.anyio]

MESSAGES: Any = [{"role": "user", "content": "hello"}]
CHAT = (
    'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"tiny","choices":'
    '[{"index":0,"delta":{"content":"häh"},"finish_reason":null}]}\n\n'
).encode()
TEXT = (
    b'data: {"id":"c","object":"text_completion","created":1,"model":"tiny","choices":'
    b'[{"index":0,"text":"hi","logprobs":null,"finish_reason":null}]}\n\n'
)
DELTA = (
    b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta","delta":"hi",'
    b'"item_id":"m","output_index":0,"content_index":0,"sequence_number":1,"logprobs":[]}\n\n'
)
BLOCK = (
    b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,'
    b'"delta":{"type":"text_delta","text":"hi"}}\n\n'
)


async def chat_sync(url: str) -> int:
    def read() -> int:
        with openai.OpenAI(base_url=f"{url}/v1", api_key="sk", max_retries=0) as client:
            stream = client.chat.completions.create(model="tiny", messages=MESSAGES, stream=True)
            return count([chunk.choices[0].delta.content for chunk in stream])

    return await asyncio.to_thread(read)


async def chat(url: str) -> int:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="sk", max_retries=0) as client:
        stream = await client.chat.completions.create(model="tiny", messages=MESSAGES, stream=True)
        return count([chunk async for chunk in stream])


async def completions(url: str) -> int:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="sk", max_retries=0) as client:
        stream = await client.completions.create(model="tiny", prompt="hello", stream=True)
        return count([chunk async for chunk in stream])


async def responses(url: str) -> int:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="sk", max_retries=0) as client:
        stream = await client.responses.create(model="tiny", input="hello", stream=True)
        return count([event async for event in stream])


async def messages(url: str) -> int:
    async with anthropic.AsyncAnthropic(base_url=url, api_key="sk", max_retries=0) as client:
        stream = await client.messages.create(
            model="tiny", max_tokens=1, messages=MESSAGES, stream=True
        )
        return count([event async for event in stream])


async def messages_sync(url: str) -> int:
    def read() -> int:
        with anthropic.Anthropic(base_url=url, api_key="sk", max_retries=0) as client:
            stream = client.messages.create(
                model="tiny", max_tokens=1, messages=MESSAGES, stream=True
            )
            return count(list(stream))

    return await asyncio.to_thread(read)


def count(events: list[Any]) -> int:
    return len(events)


Read = Callable[[str], Awaitable[int]]
CLIENTS = [
    pytest.param(chat, CHAT, id="chat"),
    pytest.param(chat_sync, CHAT, id="chat-sync"),
    pytest.param(completions, TEXT, id="completions"),
    pytest.param(responses, DELTA, id="responses"),
    pytest.param(messages, BLOCK, id="messages"),
    pytest.param(messages_sync, BLOCK, id="messages-sync"),
]
# Cuts of the broken frame: nothing, a partial field name, a partial line, a partial UTF-8
# character, and all except the last byte.
CUTS = [0, 3, 60, CHAT.index("ä".encode()) + 1, -1]


@pytest.fixture
def streaming(engine: Any, weft: Any) -> Callable[..., AbstractAsyncContextManager[Any]]:
    """Return `async with streaming(pieces, ending) as gateway`, whose engine streams the pieces."""

    @asynccontextmanager
    async def start(pieces: tuple[bytes, ...], ending: str) -> AsyncIterator[Any]:
        async def script(wire: Any, request: Any) -> None:
            await wire.stream(*filter(None, pieces), end=ending == "end")
            if ending == "close":
                wire.writer.close()

        async with engine(script=script) as stub, weft(stub) as gateway:
            yield gateway

    return start


@pytest.mark.parametrize(("read", "frame"), CLIENTS)
@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("ending", ["close", "end"])
async def test_a_broken_stream_raises_an_api_error(
    read: Read, frame: bytes, cut: int, ending: str, streaming: Any
) -> None:
    async with streaming((frame, frame[:cut]), ending) as gateway:
        with pytest.raises((openai.APIError, anthropic.APIError)) as caught:
            await read(gateway.url)
        error: Any = caught.value
        # Anthropic's errors have no code.
        assert getattr(error, "code", "replica_closed") == "replica_closed"
        assert "before" in str(error)


@pytest.mark.parametrize(
    ("read", "frame", "last"),
    [
        (chat, CHAT, b"data: [DONE]\n\n"),
        (chat_sync, CHAT, b"data: [DONE]\r\n\r\n"),
        (completions, TEXT, b"data:[DONE]\n\n"),
        (messages, BLOCK, b'event: message_stop\ndata: {"type":"message_stop"}\n\n'),
        (
            responses,
            DELTA,
            b"event: response.incomplete\n"
            b'data: {"type":"response.incomplete","sequence_number":2,"response":{}}\n\n',
        ),
    ],
)
async def test_a_complete_stream_raises_no_error_for_any_chunking(
    read: Read, frame: bytes, last: bytes, streaming: Any
) -> None:
    whole = frame + frame + last
    pieces = tuple(whole[i : i + 7] for i in range(0, len(whole), 7))
    async with streaming(pieces, "end") as gateway:
        # The end marker is an event for some clients.
        assert await read(gateway.url) in (2, 3)
