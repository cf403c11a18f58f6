"""The real OpenAI and Anthropic clients understand our errors as they do their own servers'."""

from typing import Any

import anthropic
import openai
import pytest

pytestmark = [pytest.mark.system, pytest.mark.anyio]

MESSAGES: Any = [{"role": "user", "content": "hello"}]
CHUNK = (
    b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"tiny","choices":'
    b'[{"index":0,"delta":{"content":"hi"},"finish_reason":null}]}\n\n'
)


def openai_client(gateway: Any, **options: Any) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(
        base_url=f"{gateway.url}/v1", api_key="sk-test", max_retries=0, **options
    )


def anthropic_client(gateway: Any) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(base_url=gateway.url, api_key="sk-test", max_retries=0)


async def test_openai_streams(engine: Any, weft: Any) -> None:
    async def script(wire: Any, request: Any) -> None:
        await wire.stream(CHUNK, CHUNK, b"data: [DONE]\n\n")

    async with (
        engine(script=script) as stub,
        weft(stub) as gateway,
        openai_client(gateway) as client,
    ):
        stream = await client.chat.completions.create(model="tiny", messages=MESSAGES, stream=True)
        assert [chunk.choices[0].delta.content async for chunk in stream] == ["hi", "hi"]


async def test_openai_finds_an_unknown_model_as_it_does_at_home(engine: Any, weft: Any) -> None:
    async with engine() as stub, weft(stub) as gateway, openai_client(gateway) as client:
        with pytest.raises(openai.NotFoundError) as caught:
            await client.chat.completions.create(model="nobody", messages=MESSAGES)
        assert caught.value.code == "model_not_found"
        assert caught.value.request_id
        with pytest.raises(openai.NotFoundError):
            await client.models.retrieve("nobody")
        assert [model.id async for model in client.models.list()] == ["tiny"]


async def test_openai_raises_when_a_stream_breaks(engine: Any, weft: Any) -> None:
    async def script(wire: Any, request: Any) -> None:
        await wire.stream(CHUNK, end=False)
        wire.writer.close()

    async with (
        engine(script=script) as stub,
        weft(stub) as gateway,
        openai_client(gateway) as client,
    ):
        stream = await client.chat.completions.create(model="tiny", messages=MESSAGES, stream=True)
        with pytest.raises(openai.APIError) as caught:
            async for _ in stream:
                pass
        assert caught.value.code == "replica_closed"


async def test_openai_retries_what_may_work_later(engine: Any, weft: Any) -> None:
    async with weft("http://127.0.0.1:9") as gateway, openai_client(gateway) as client:
        with pytest.raises(openai.InternalServerError) as caught:
            await client.chat.completions.create(model="tiny", messages=MESSAGES)
        assert caught.value.code == "no_replica"
        assert int(caught.value.response.headers["retry-after"]) > 0


async def test_anthropic_understands_our_errors(engine: Any, weft: Any) -> None:
    async with engine() as stub, weft(stub) as gateway, anthropic_client(gateway) as client:
        with pytest.raises(anthropic.NotFoundError):
            await client.messages.create(model="nobody", max_tokens=1, messages=MESSAGES)


async def test_anthropic_raises_when_a_stream_breaks(engine: Any, weft: Any) -> None:
    async def script(wire: Any, request: Any) -> None:
        await wire.stream(b'event: ping\ndata: {"type":"ping"}\n\n', end=False)
        wire.writer.close()

    async with (
        engine(script=script) as stub,
        weft(stub) as gateway,
        anthropic_client(gateway) as client,
    ):
        stream = await client.messages.create(
            model="tiny", max_tokens=1, messages=MESSAGES, stream=True
        )
        with pytest.raises(anthropic.APIStatusError, match="closed the connection"):
            async for _ in stream:
                pass
