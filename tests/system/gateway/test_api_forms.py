"""The official clients with the forms of each API: a test for each cell of the reference page."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from support import batches
from support.waiting import DEADLINE_S

pytestmark = [pytest.mark.system, pytest.mark.anyio]

ASK: Any = [{"role": "user", "content": "hello"}]
WORDS = "temperature must be non-negative, got -3.0."
REFUSED = f"{WORDS} (parameter=temperature, value=-3.0)"
TOO_LONG = (
    "This model's maximum context length is 4096 tokens. However, your prompt contains at least "
    "5000 input tokens. (parameter=input_tokens, value=5000)"
)
DEAD = "EngineCore encountered an issue."
CHAT = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
CHAT |= {"prompt_tokens_details": {"cached_tokens": 4}}
INPUT = {"input_tokens": 9, "output_tokens": 3, "total_tokens": 12}
INPUT |= {"input_tokens_details": {"cached_tokens": 4}}
MESSAGE = {"input_tokens": 5, "cache_read_input_tokens": 4, "output_tokens": 3}
TEXT = {"type": "output_text", "text": "Hi.", "annotations": []}
ITEM = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
ITEM |= {"content": [TEXT]}
WHOLE = {"id": "resp_1", "object": "response", "created_at": 1, "model": "tiny", "output": [ITEM]}


def event(kind: str, **members: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind} | members)}\n\n".encode()


def chunk(name: str, **members: Any) -> bytes:
    chunk = {"id": "c", "object": name, "created": 1, "model": "tiny", "choices": []} | members
    return f"data: {json.dumps(chunk)}\n\n".encode()


def choice(**members: Any) -> list[dict[str, Any]]:
    return [{"index": 0, "finish_reason": None} | members]


DONE = b"data: [DONE]\n\n"
STREAMS: dict[str, list[bytes]] = {
    "/v1/chat/completions": [
        chunk("chat.completion.chunk", choices=choice(delta={"content": "Hi."})),
        chunk("chat.completion.chunk", usage=CHAT),
        DONE,
    ],
    "/v1/completions": [
        chunk("text_completion", choices=choice(text="Hi.")),
        chunk("text_completion", usage=CHAT),
        DONE,
    ],
    "/v1/responses": [
        event("response.created", sequence_number=0, response=WHOLE | {"output": []}),
        event("response.completed", sequence_number=1, response=WHOLE | {"usage": INPUT}),
    ],
    "/v1/messages": [
        event("message_start", message={
            "id": "msg_1", "type": "message", "role": "assistant", "model": "tiny", "content": [],
            "stop_reason": None, "usage": MESSAGE | {"output_tokens": 0}}),
        event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        event("content_block_delta", index=0, delta={"type": "text_delta", "text": "Hi."}),
        event("content_block_stop", index=0),
        event("message_delta", delta={"stop_reason": "end_turn"}, usage=MESSAGE),
        event("message_stop"),
    ],
}  # fmt: skip
PLAIN: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {
        "id": "c", "object": "chat.completion", "created": 1, "model": "tiny", "usage": CHAT,
        "choices": choice(message={"role": "assistant", "content": "Hi."}),
    },
    "/v1/messages": {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "tiny", "usage": MESSAGE,
        "content": [{"type": "text", "text": "Hi."}], "stop_reason": "end_turn",
    },
}  # fmt: skip


class Playing:
    """The script of an engine. aspect: of the table."""

    def __init__(self, aspect: str) -> None:
        self.aspect = aspect
        self.heard = asyncio.Event()

    async def __call__(self, wire: Any, request: Any) -> None:
        path, texts = request.target, {"error": REFUSED, "too_long": TOO_LONG}
        text = texts.get(self.aspect)
        if text is not None:
            error = {"message": text, "type": "BadRequestError", "param": "temperature"}
            await wire.plain({"error": error | {"code": 400}}, "400 Bad Request")
        elif not request.json.get("stream"):
            await wire.plain(PLAIN[path])
        elif self.aspect == "stream_error":
            said = b"data: " + json.dumps({"error": {"message": DEAD, "code": 500}}).encode()
            if path in ("/v1/messages", "/v1/responses"):
                said = b"event: error\n" + said
            await wire.stream(STREAMS[path][0], said + b"\n\n")
        else:
            if self.aspect == "keep_alive":
                # The silence ends once the client has a keep-alive.
                await self.heard.wait()
            await wire.stream(*STREAMS[path])


class Clients:
    """The official clients of one gateway."""

    def __init__(self, gateway: Any) -> None:
        self.openai = openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="a", max_retries=0)
        self.anthropic = anthropic.AsyncAnthropic(base_url=gateway.url, api_key="a", max_retries=0)

    async def chat(self) -> Any:
        options = {"include_usage": True}
        stream = await self.openai.chat.completions.create(
            model="tiny", messages=ASK, stream=True, stream_options=options
        )
        chunks = [chunk async for chunk in stream]
        return chunks[0].choices[0].delta.content, chunks[-1].usage

    async def completions(self) -> Any:
        stream = await self.openai.completions.create(model="tiny", prompt="hello", stream=True)
        chunks = [chunk async for chunk in stream]
        return chunks[0].choices[0].text, chunks[-1].usage

    async def responses(self) -> Any:
        stream = await self.openai.responses.create(model="tiny", input="hello", stream=True)
        last = [event async for event in stream][-1]
        assert last.type == "response.completed"
        return last.response.output_text, last.response.usage

    async def websocket(self) -> Any:
        """Return the text and usage, or the events after which no answer comes."""
        async with self.openai.responses.connect() as connection:
            await connection.response.create(model="tiny", input="hello")
            failed = []
            async for event in connection:
                if event.type == "response.completed":
                    return event.response.output_text, event.response.usage
                if event.type in ("error", "response.failed"):
                    failed.append(event)
                    # An error before the answer has a status, and is the only event.
                    if event.type == "response.failed" or "status" in event.to_dict():
                        return failed
        raise AssertionError("the connection has ended")

    async def messages(self) -> Any:
        async with self.anthropic.messages.stream(
            model="tiny", max_tokens=9, messages=ASK
        ) as stream:
            message = await stream.get_final_message()
        return message.content[0].text, message.usage

    async def batches(self) -> Any:
        """Return the batch and its first line."""
        batch = await batches.run(self.openai, batches.lines(batches.line(1)))
        file = batch.output_file_id or batch.error_file_id
        return batch, json.loads((await self.openai.files.content(file)).text)

    async def message_batches(self) -> Any:
        """Return the batch and its first result."""
        params: Any = {"model": "tiny", "max_tokens": 9, "messages": ASK}
        api = self.anthropic.messages.batches
        batch = await api.create(requests=[{"custom_id": "one", "params": params}])
        async with asyncio.timeout(DEADLINE_S):
            while batch.processing_status != "ended":
                batch = await api.retrieve(batch.id)
        (result,) = [result async for result in await api.results(batch.id)]
        return batch, result.result


Test = Callable[[Clients, Any, str], Awaitable[None]]


async def refused(clients: Clients, gateway: Any, api: str) -> None:
    """The engine refuses the call."""
    if api == "websocket":
        (error,) = await clients.websocket()
        assert (error.type, error.status) == ("error", 400)
        assert (error.error.message, error.error.code) == (WORDS, None)
    elif api == "batches":
        _, line = await clients.batches()
        assert line["response"]["status_code"] == 400
        assert line["response"]["body"]["error"]["message"] == WORDS
    elif api == "message_batches":
        _, result = await clients.message_batches()
        error = result.error
        assert (result.type, error.error.type) == ("errored", "invalid_request_error")
        assert (error.error.message, bool(error.request_id)) == (WORDS, True)
    else:
        library: Any = anthropic if api == "messages" else openai
        with pytest.raises(library.BadRequestError) as caught:
            await getattr(clients, api)()
        if api == "messages":
            body = caught.value.body
            assert body["error"] == {"type": "invalid_request_error", "message": WORDS}
            assert body["request_id"] == caught.value.request_id
        else:
            assert (caught.value.code, caught.value.param) == (None, "temperature")
            assert WORDS in caught.value.message


async def too_long(clients: Clients, gateway: Any, api: str) -> None:
    """The prompt exceeds the context."""
    anthropics = "prompt is too long: 5000 tokens > 4096 maximum"
    if api == "websocket":
        (error,) = await clients.websocket()
        assert error.error.code == "context_length_exceeded"
    elif api == "batches":
        _, line = await clients.batches()
        assert line["response"]["body"]["error"]["code"] == "context_length_exceeded"
    elif api == "message_batches":
        _, result = await clients.message_batches()
        assert result.error.error.message == anthropics
    elif api == "messages":
        with pytest.raises(anthropic.BadRequestError, match=anthropics):
            await clients.messages()
    else:
        with pytest.raises(openai.BadRequestError) as caught:
            await getattr(clients, api)()
        params = {"chat": "messages", "completions": "prompt", "responses": "input"}
        assert caught.value.code == "context_length_exceeded"
        assert caught.value.param == params[api]


async def broken(clients: Clients, gateway: Any, api: str) -> None:
    """The engine fails within its stream."""
    if api == "websocket":
        error, failed = await clients.websocket()
        assert (error.type, error.message) == ("error", DEAD)
        assert failed.response.error.message == DEAD
        return
    library: Any = anthropic if api == "messages" else openai
    kind = library.APIStatusError if api == "messages" else library.APIError
    with pytest.raises(kind, match=DEAD):
        await getattr(clients, api)()


async def ended(clients: Clients, gateway: Any, api: str) -> None:
    """The answer is whole."""
    text, _ = await getattr(clients, api)()
    if api == "batches":
        assert text.status == "completed"
    elif api == "message_batches":
        assert text.processing_status == "ended"
    else:
        assert text == "Hi."


async def counted(clients: Clients, gateway: Any, api: str) -> None:
    """The client shows the usage; the gateway counts the same prompt for every API."""
    found, usage = await getattr(clients, api)()
    if api == "batches":
        usage = found.usage
    elif api == "message_batches":
        usage = usage.message.usage
    shown = usage.model_dump()
    if "message" in api:
        assert (shown["input_tokens"], shown["cache_read_input_tokens"]) == (5, 4)
    elif api in ("chat", "completions"):
        assert shown["prompt_tokens"] == 9
        assert shown["prompt_tokens_details"]["cached_tokens"] == 4
    else:
        assert (shown["input_tokens"], shown["input_tokens_details"]["cached_tokens"]) == (9, 4)
    metrics = (await gateway.client.get("/metrics")).text
    for name, tokens in (("prompt", 9), ("cached", 4), ("output", 3)):
        assert f'weft_{name}_tokens_total{{replica="r0"}} {tokens}.0' in metrics


async def kept_alive(clients: Clients, gateway: Any, api: str) -> None:
    """The client waits while nothing comes but keep-alives."""
    text, _ = await getattr(clients, api)()
    assert text == "Hi."


async def listed(clients: Clients, gateway: Any, api: str) -> None:
    """The client lists the models."""
    if api == "chat":
        assert [model.id async for model in clients.openai.models.list()] == ["tiny"]
        return
    (model,) = [model async for model in clients.anthropic.models.list()]
    assert (model.id, model.display_name, model.max_input_tokens) == ("tiny", "tiny", 4096)
    assert (await clients.anthropic.models.retrieve("tiny")).type == "model"


# By the titles of the page.
ASPECTS: dict[str, tuple[str, Test]] = {
    "An error before the answer": ("error", refused),
    "A prompt that is too long": ("too_long", too_long),
    "An error within a stream": ("stream_error", broken),
    "The end of an answer": ("end", ended),
    "Usage": ("usage", counted),
    "Keep-alives": ("keep_alive", kept_alive),
    "Lists of models": ("models", listed),
}
APIS = {
    "Chat Completions": "chat",
    "Completions": "completions",
    "Responses": "responses",
    "Responses over a WebSocket": "websocket",
    "Messages": "messages",
    "Batches": "batches",
    "Message Batches": "message_batches",
}
PAGE = Path(__file__).parents[3] / "docs" / "reference" / "api-forms.md"


def cells() -> Iterator[tuple[str, str]]:
    """Yield (title, API) of each row of the page."""
    for section in PAGE.read_text().split("\n## ")[1:]:
        title, *lines = section.splitlines()
        for api in [line.split(" | ")[0].removeprefix("| ") for line in lines if line[:1] == "|"]:
            if api not in ("API", "---"):
                yield title, APIS[api]


EVERY_S = 0.05


@pytest.mark.parametrize(("title", "api"), list(cells()))
async def test_the_official_client(title: str, api: str, engine: Any, weft: Any) -> None:
    aspect, test = ASPECTS[title]
    script = Playing(aspect)
    async with (
        engine(script=script, weft=False) as stub,
        weft(stub, heartbeat_s=EVERY_S if aspect == "keep_alive" else 0) as gateway,
    ):
        clients = Clients(gateway)
        async with clients.openai, clients.anthropic:
            if aspect == "keep_alive":
                asyncio.get_running_loop().call_later(8 * EVERY_S, script.heard.set)
            await test(clients, gateway, api)
