"""The OpenAI and Anthropic clients raise their documented exceptions for errors of the gateway."""

import json
from typing import Any

import anthropic
import openai
import pytest

pytestmark = [pytest.mark.system, pytest.mark.anyio]

MESSAGES: Any = [{"role": "user", "content": "hello"}]


def openai_client(gateway: Any, **options: Any) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(
        base_url=f"{gateway.url}/v1", api_key="sk-test", max_retries=0, **options
    )


def anthropic_client(gateway: Any) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(base_url=gateway.url, api_key="sk-test", max_retries=0)


async def test_openai_raises_not_found_for_an_unknown_model(engine: Any, weft: Any) -> None:
    async with engine() as stub, weft(stub) as gateway, openai_client(gateway) as client:
        with pytest.raises(openai.NotFoundError) as caught:
            await client.chat.completions.create(model="nobody", messages=MESSAGES)
        assert caught.value.code == "model_not_found"
        assert caught.value.request_id
        with pytest.raises(openai.NotFoundError):
            await client.models.retrieve("nobody")
        assert [model.id async for model in client.models.list()] == ["tiny"]


async def test_openai_gets_a_retryable_error_without_replicas(engine: Any, weft: Any) -> None:
    async with weft("http://127.0.0.1:9") as gateway, openai_client(gateway) as client:
        with pytest.raises(openai.InternalServerError) as caught:
            await client.chat.completions.create(model="tiny", messages=MESSAGES)
        assert caught.value.code == "no_replica"
        assert int(caught.value.response.headers["retry-after"]) > 0


REFUSALS: Any = [
    # Gateway settings, call options, then the expected status, exception and type.
    ({}, {"extra_headers": {"x-session-id": "x" * 257}}, 400, anthropic.BadRequestError,
     "invalid_request_error"),
    ({"api_keys": "sk-other"}, {}, 401, anthropic.AuthenticationError,
     "authentication_error"),
    ({}, {"model": "nobody"}, 404, anthropic.NotFoundError, "not_found_error"),
    ({"max_body_bytes": 1024}, {"system": "x" * 2000}, 413, anthropic.RequestTooLargeError,
     "request_too_large"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "wrong", "status", "kind", "type_"), REFUSALS, ids=lambda v: str(v)[:20]
)
async def test_anthropic_raises_the_exception_of_each_error(
    settings: Any, wrong: Any, status: int, kind: Any, type_: str, engine: Any, weft: Any
) -> None:
    options = {"model": "tiny", "max_tokens": 1, "messages": MESSAGES} | wrong
    async with (
        engine() as stub,
        weft(stub, **settings) as gateway,
        anthropic_client(gateway) as client,
    ):
        with pytest.raises(kind) as caught:
            await client.messages.create(**options)
        error = caught.value
        assert (error.status_code, error.body["type"]) == (status, "error")
        assert error.body["error"].keys() == {"type", "message"}
        assert error.body["error"]["type"] == type_
        assert error.body["request_id"] == error.request_id
        assert error.response.headers["x-request-id"] == error.request_id
        assert stub.requests == []


async def test_anthropic_gets_a_retry_after_header(weft: Any) -> None:
    async with weft("http://127.0.0.1:9") as gateway, anthropic_client(gateway) as client:
        with pytest.raises(anthropic.APIStatusError) as caught:
            await client.messages.create(model="tiny", max_tokens=1, messages=MESSAGES)
        body: Any = caught.value.body
        assert (caught.value.status_code, body["error"]["type"]) == (503, "overloaded_error")
        assert int(caught.value.response.headers["retry-after"]) > 0


TOOL: Any = {
    "name": "get_weather",
    "description": "The weather in a city.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}
USE: Any = {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "Nîmes"}}


def message(*content: Any, stop: str | None = "tool_use") -> dict[str, Any]:
    usage = {"input_tokens": 1, "output_tokens": 1}
    return {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "tiny", "usage": usage,
        "content": list(content), "stop_reason": stop, "stop_sequence": None,
    }  # fmt: skip


def events(*data: dict[str, Any]) -> list[bytes]:
    return [f"event: {d['type']}\ndata: {json.dumps(d)}\n\n".encode() for d in data]


async def use_a_tool(wire: Any, request: Any) -> None:
    """Call the weather tool, then accept any result."""
    last = request.json["messages"][-1]["content"]
    if isinstance(last, list):
        await wire.plain(message({"type": "text", "text": "sunny"}, stop="end_turn"))
    elif not request.json.get("stream"):
        await wire.plain(message(USE))
    else:
        delta = {"type": "content_block_delta", "index": 0}
        pieces = [
            {"type": "input_json_delta", "partial_json": p} for p in ('{"city": "N', 'îmes"}')
        ]
        await wire.stream(
            *events(
                {"type": "message_start", "message": message(stop=None)},
                {"type": "content_block_start", "index": 0, "content_block": USE | {"input": {}}},
                *(delta | {"delta": piece} for piece in pieces),
                {"type": "content_block_stop", "index": 0},
                {
                    "type": "message_delta",
                    "delta": {"stop_reason": "tool_use", "stop_sequence": None},
                    "usage": {"output_tokens": 2},
                },
                {"type": "message_stop"},
            )
        )


@pytest.mark.parametrize("streamed", [False, True], ids=["plain", "stream"])
async def test_anthropic_completes_a_tool_call_and_its_result(
    streamed: bool, engine: Any, weft: Any
) -> None:
    options: Any = {
        "model": "tiny",
        "max_tokens": 9,
        "tools": [TOOL],
        "tool_choice": {"type": "any"},
        "extra_headers": {"x-claude-code-session-id": "run", "x-claude-code-agent-id": "a"},
    }
    async with (
        engine(script=use_a_tool) as stub,
        weft(stub) as gateway,
        anthropic_client(gateway) as client,
    ):
        if streamed:
            async with client.messages.stream(messages=MESSAGES, **options) as stream:
                first = await stream.get_final_message()
        else:
            first = await client.messages.create(messages=MESSAGES, **options)
        (use,) = first.content
        assert (first.stop_reason, use.name, use.input) == ("tool_use", "get_weather", USE["input"])
        asked = {"role": "assistant", "content": [block.model_dump() for block in first.content]}
        result = {"type": "tool_result", "tool_use_id": use.id, "content": "21 degrees"}
        answer = {"role": "user", "content": [result]}
        last = await client.messages.create(messages=[*MESSAGES, asked, answer], **options)
        assert last.content[0].text == "sunny"
        sent = stub.requests[0].json
        assert (sent["tools"], sent["tool_choice"]) == ([TOOL], {"type": "any"})
        _, use_sent, result_sent = stub.requests[1].json["messages"]
        assert use_sent["content"][0]["input"] == USE["input"]
        assert result_sent == answer
        key = {"authorization": "Bearer sk-test"}
        session = (await gateway.client.get("/v1/sessions/run", headers=key)).json()
        assert (session["calls"], session["errors"]) == (2, 0)


@pytest.mark.parametrize("streamed", [False, True], ids=["plain", "stream"])
async def test_openai_continues_a_response_in_its_program(
    streamed: bool, engine: Any, weft: Any
) -> None:
    async def script(wire: Any, request: Any) -> None:
        answer = {
            "id": f"resp_{len(stub.requests)}", "object": "response", "created_at": 1,
            "model": "tiny", "output": [], "status": "completed", "parallel_tool_calls": True,
            "tool_choice": "auto", "tools": [],
        }  # fmt: skip
        if not request.json.get("stream"):
            await wire.plain(answer)
            return
        begun, ended = (
            {"type": f"response.{what}", "response": answer, "sequence_number": n}
            for n, what in enumerate(("created", "completed"))
        )
        await wire.stream(*events(begun, ended))

    async with (
        engine(script=script) as stub,
        weft(stub) as gateway,
        openai_client(gateway) as client,
    ):
        programs, previous = [], openai.omit
        for number in range(1, 4):
            raw = await client.responses.with_raw_response.create(
                model="tiny", input="go on", previous_response_id=previous, stream=streamed
            )
            programs.append(raw.headers["x-weft-program"])
            if streamed:
                received = [event async for event in raw.parse()]
                previous = received[-1].response.id
            else:
                previous = raw.parse().id
            assert previous == f"resp_{number}"
        assert len(set(programs)) == 1
        # The gateway has put the items in the place of the ids.
        assert [len(r.json["input"]) for r in stub.requests[1:]] == [2, 3]
        assert not any(r.json.get("previous_response_id") for r in stub.requests)
        key = {"authorization": "Bearer sk-test"}
        path = f"/v1/sessions/{programs[0]}"
        assert (await gateway.client.get(path, headers=key)).json()["calls"] == 3
        other = await client.responses.with_raw_response.create(model="tiny", input="anew")
        assert other.headers["x-weft-program"] not in programs
