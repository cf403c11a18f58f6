"""Real clients ignore `event: tool_call_dispatch` in streams."""

import json
from typing import Any

import anthropic
import openai
import pytest
from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    RunConfig,
    Runner,
    function_tool,
)
from langchain_openai import ChatOpenAI
from weft_gateway.overlap.dispatch import EVENT, ToolDispatch

pytestmark = [pytest.mark.system, pytest.mark.anyio]

MESSAGES: Any = [{"role": "user", "content": "hello"}]
ARGUMENTS = '{"city": "Oslo"}'
TOOL: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


def sse(data: Any, name: str | None = None) -> bytes:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data)}\n\n".encode()


def chat(delta: Any, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "tiny"}
    return sse(head | {"choices": [choice]})


CALL = {"index": 0, "id": "call-1", "type": "function"}
CHAT = [
    chat({"role": "assistant", "content": ""}),
    chat({"content": "I look."}),
    chat({"tool_calls": [CALL | {"function": {"name": "weather", "arguments": ""}}]}),
    *(chat({"tool_calls": [{"index": 0, "function": {"arguments": a}}]}) for a in ARGUMENTS),
    chat({}, "tool_calls"),
    b"data: [DONE]\n\n",
]
ANSWER = [chat({"role": "assistant", "content": "Rain."}), chat({}, "stop"), b"data: [DONE]\n\n"]

USAGE = {"input_tokens": 1, "output_tokens": 1}
BLOCK = {"type": "tool_use", "id": "call-1", "name": "weather", "input": {}}
ANTHROPIC = [
    sse(event, event["type"])
    for event in (
        {
            "type": "message_start",
            "message": {"id": "m", "type": "message", "role": "assistant", "content": [],
                        "model": "tiny", "stop_reason": None, "usage": USAGE},
        },
        {"type": "content_block_start", "index": 0, "content_block": BLOCK},
        *(
            {"type": "content_block_delta", "index": 0,
             "delta": {"type": "input_json_delta", "partial_json": a}}
            for a in ARGUMENTS
        ),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": USAGE},
        {"type": "message_stop"},
    )
]  # fmt: skip

ITEM = {"type": "function_call", "id": "fc", "call_id": "call-1", "name": "weather"}
RESPONSE = {"id": "r", "object": "response", "created_at": 1, "model": "tiny", "tools": [],
            "parallel_tool_calls": True, "tool_choice": "auto"}  # fmt: skip
AT = {"output_index": 0, "item_id": "fc"}
RESPONSES = [
    sse(event | {"sequence_number": number}, event["type"])
    for number, event in enumerate(
        (
            {"type": "response.created", "response": RESPONSE | {"output": []}},
            {"type": "response.output_item.added", "item": ITEM | {"arguments": ""}, **AT},
            *(
                {"type": "response.function_call_arguments.delta", "delta": a, **AT}
                for a in ARGUMENTS
            ),
            {"type": "response.function_call_arguments.done", "arguments": ARGUMENTS, **AT},
            {"type": "response.output_item.done", "item": ITEM | {"arguments": ARGUMENTS}, **AT},
            {
                "type": "response.completed",
                "response": RESPONSE | {"output": [ITEM | {"arguments": ARGUMENTS}]},
            },
        )
    )
]


def with_dispatch(frames: list[bytes]) -> list[bytes]:
    """Return the stream of a client that requested the event."""
    dispatch = ToolDispatch()
    out = [dispatch.feed(frame)[0] for frame in frames]
    assert sum(EVENT.encode() in frame for frame in out) == 1
    return out


def play(*streams: list[bytes]) -> Any:
    """Return the script of a server that answers with these streams in order."""
    queue = list(streams)

    async def script(wire: Any, request: Any) -> None:
        await wire.stream(*queue.pop(0))

    return script


def openai_client(stub: Any) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{stub.url}/v1", api_key="none", max_retries=0)


async def test_openai_chat_streams_ignore_the_dispatch_event(engine: Any) -> None:
    async with (
        engine(script=play(CHAT, with_dispatch(CHAT))) as stub,
        openai_client(stub) as client,
    ):
        plain, with_event = [
            [
                choice
                async for chunk in await client.chat.completions.create(
                    model="tiny", messages=MESSAGES, stream=True
                )
                for choice in chunk.choices
            ]
            for _ in range(2)
        ]
        assert with_event == plain
        assert plain[-1].finish_reason == "tool_calls"


async def test_the_openai_stream_helper_ignores_the_dispatch_event(engine: Any) -> None:
    async with engine(script=play(with_dispatch(CHAT))) as stub, openai_client(stub) as client:
        async with client.chat.completions.stream(
            model="tiny", messages=MESSAGES, tools=[TOOL]
        ) as stream:
            completion = await stream.get_final_completion()
        [call] = completion.choices[0].message.tool_calls or []
        assert call.function.arguments == ARGUMENTS


async def test_openai_response_streams_pass_the_dispatch_event_on(engine: Any) -> None:
    frames = with_dispatch(RESPONSES)
    async with engine(script=play(frames, frames)) as stub, openai_client(stub) as client:
        events = [
            event.type
            async for event in await client.responses.create(
                model="tiny", input="hello", stream=True
            )
        ]
        assert events.pop(events.index(EVENT)) == EVENT  # type: ignore[arg-type]
        assert events == [json.loads(frame.split(b"data: ")[1])["type"] for frame in RESPONSES]
        async with client.responses.stream(model="tiny", input="hello") as stream:
            response = await stream.get_final_response()
        assert response.output[0].arguments == ARGUMENTS  # type: ignore[union-attr]


async def test_anthropic_message_streams_ignore_the_dispatch_event(engine: Any) -> None:
    frames = with_dispatch(ANTHROPIC)
    async with (
        engine(script=play(frames, frames)) as stub,
        anthropic.AsyncAnthropic(base_url=stub.url, api_key="none", max_retries=0) as client,
    ):
        ask: Any = {"model": "tiny", "max_tokens": 9, "messages": MESSAGES}
        events = [event.type async for event in await client.messages.create(**ask, stream=True)]
        assert events[-1] == "message_stop"
        async with client.messages.stream(**ask) as stream:
            message = await stream.get_final_message()
        assert message.content[0].input == json.loads(ARGUMENTS)  # type: ignore[union-attr]
        assert message.stop_reason == "tool_use"


async def test_langchain_ignores_the_dispatch_event(engine: Any) -> None:
    async with engine(script=play(with_dispatch(CHAT))) as stub:
        model = ChatOpenAI(base_url=f"{stub.url}/v1", api_key="none", model="tiny")  # type: ignore[arg-type]
        message: Any = None
        async for chunk in model.astream("hello"):
            message = chunk if message is None else message + chunk
        assert message.content == "I look."
        assert [(c["name"], c["args"]) for c in message.tool_calls] == [
            ("weather", json.loads(ARGUMENTS))
        ]


async def test_the_openai_agents_sdk_ignores_the_dispatch_event(engine: Any) -> None:
    asked = []

    @function_tool
    def weather(city: str) -> str:
        asked.append(city)
        return "rain"

    async with (
        engine(script=play(with_dispatch(CHAT), ANSWER)) as stub,
        openai_client(stub) as client,
    ):
        agent = Agent(
            name="guide",
            tools=[weather],
            model=OpenAIChatCompletionsModel(model="tiny", openai_client=client),
            model_settings=ModelSettings(include_usage=False),
        )
        run = Runner.run_streamed(
            agent, "hello", max_turns=2, run_config=RunConfig(tracing_disabled=True)
        )
        async for _ in run.stream_events():
            pass
    assert (asked, run.final_output) == (["Oslo"], "Rain.")
