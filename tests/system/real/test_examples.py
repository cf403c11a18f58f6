"""The examples against real vLLM: each agent calls its tool through the engine's parser.

The demo model samples. Its answers can end at their first token, so an answer may be empty.
"""

from __future__ import annotations

import asyncio
import json

import anthropic
import httpx
import openai
import pytest
from agents.items import ToolCallOutputItem
from langchain_core.messages import ToolMessage
from support.stack import until
from support.waiting import DEADLINE_S
from weft_programs import Session, Tool
from weft_programs.examples import langgraph_agent, openai_agents, overlap

pytestmark = [pytest.mark.system, pytest.mark.engine]

ASK = [{"role": "user", "content": "What is the weather in Oslo?"}]
MODEL = "weft-demo"
WEATHER = Tool("get_weather", print, "The weather in a city.", overlap.CITY).as_json()
FORCED = {"type": "function", "function": {"name": "get_weather"}}


def test_the_langgraph_example_calls_its_tool(stack):
    messages = langgraph_agent.main(f"{stack.url}/v1")
    assert [message.type for message in messages] == ["human", "ai", "tool", "ai"]
    assert isinstance(messages[2], ToolMessage)
    assert messages[2].status == "success"
    assert isinstance(messages[3].content, str)
    assert not messages[3].tool_calls


def test_the_openai_agents_example_calls_its_tool(stack):
    result = asyncio.run(openai_agents.main(f"{stack.url}/v1"))
    outputs = [item.output for item in result.new_items if isinstance(item, ToolCallOutputItem)]
    assert outputs[0].startswith("21 degrees")
    assert isinstance(result.final_output, str)


def test_the_overlap_example_answers_with_overlapping_tools(stack):
    run = asyncio.run(overlap.main(f"{stack.url}/v1"))
    assert run.turns >= 2
    done = [tool for tool in run.tool_runs if not tool.failed]
    assert done
    assert all(json.loads(tool.output)["degrees"] == 21 for tool in done)
    assert isinstance(run.answer, str)


def test_a_session_ends_with_its_with_block(stack):
    address = f"{stack.url}/v1/sessions"
    with Session(stack.url) as s:
        client = s.openai()
        for _ in range(2):
            client.chat.completions.create(model=MODEL, messages=ASK, max_tokens=4)
        assert (
            httpx.get(f"{address}/{s.id}", headers={"authorization": "Bearer none"}).json()["calls"]
            == 2
        )
    until(lambda: httpx.get(f"{address}/{s.id}").status_code == 404, "the program has not ended")


@pytest.mark.parametrize("choice", ["required", FORCED], ids=["required", "named"])
def test_a_tool_call_is_complete_before_the_end_of_the_answer(stack, choice):
    with Session(stack.url) as s:
        stream = s.openai().chat.completions.create(
            model=MODEL, messages=ASK, tools=[WEATHER], tool_choice=choice, max_tokens=400,
            stream=True, seed=3,
        )  # fmt: skip
        finished = []
        calls = s.tool_calls(stream, on_chunk=lambda c: finished.append(c.choices[0].finish_reason))
        found = [(call, list(finished)) for call in calls]
    assert found
    for call, before in found:
        assert call.name == "get_weather"
        assert json.loads(call.arguments)["unit"] in ("celsius", "fahrenheit")
        assert before[:-1] == [None] * (len(before) - 1)
    assert [call.index for call, _ in found] == list(range(len(found)))
    message = calls.message.as_json()
    whole = [call["function"] for call in message["tool_calls"]]
    assert [(f["name"], f["arguments"]) for f in whole[: len(found)]] == [
        (call.name, call.arguments) for call, _ in found
    ]


def test_tool_calls_in_a_json_array_are_reported_one_by_one(stack):
    call = {
        "type": "object",
        "properties": {
            "name": {"enum": ["get_weather"]},
            "arguments": WEATHER["function"]["parameters"],
        },
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }
    array = {"type": "array", "items": call, "minItems": 3, "maxItems": 3}
    with Session(stack.url) as s:
        stream = s.openai().chat.completions.create(
            model=MODEL, messages=ASK, max_tokens=600, stream=True,
            response_format={"type": "json_schema", "json_schema": {"name": "c", "schema": array}},
            extra_headers={"x-weft-tool-dispatch": "1"},
        )  # fmt: skip
        content, before, known = "", 0, []
        for chunk in stream:
            if chunk.choices:
                before, content = len(content), content + (chunk.choices[0].delta.content or "")
            elif found := (chunk.model_extra or {}).get("tool_call"):
                known.append((json.loads(found["function"]["arguments"]), before, len(content)))
    calls = json.loads(content)
    assert [arguments for arguments, _, _ in known] == [call["arguments"] for call in calls]
    assert len(known) == 3
    end = 0
    for _, before, after in known:
        _, end = json.JSONDecoder().raw_decode(content, content.index("{", end))
        assert before < end <= after, "a call was not parsed in the chunk with its closing brace"


@pytest.mark.anyio
async def test_anthropic_and_responses_streams_contain_tool_calls(stack):
    tool = WEATHER["function"]
    messages_tool = {"name": tool["name"], "input_schema": tool["parameters"]}
    async with Session(stack.url) as s:
        async with anthropic.AsyncAnthropic(
            base_url=stack.url, api_key="none", default_headers=s.headers
        ) as client:
            stream = await client.messages.create(
                model=MODEL, max_tokens=400, messages=ASK, tools=[messages_tool], stream=True,
                tool_choice={"type": "tool", "name": "get_weather"},
            )  # fmt: skip
            [call] = [call async for call in s.tool_calls(stream)]
            assert json.loads(call.arguments).keys() == {"city", "unit"}
        responses_tool = {"type": "function", **tool, "strict": True}
        stream = await s.async_openai().responses.create(
            model=MODEL, input=ASK, tools=[responses_tool], max_output_tokens=400, stream=True,
            tool_choice={"type": "function", "name": "get_weather"},
        )  # fmt: skip
        [call] = [call async for call in s.tool_calls(stream)]
        assert json.loads(call.arguments).keys() == {"city", "unit"}


@pytest.mark.anyio
async def test_tool_calls_are_dispatched_in_the_stream_and_to_listeners(stack):
    dispatched, events = asyncio.Queue(), []
    async with Session(stack.url) as s, s.register_streaming_callback(dispatched.put_nowait):
        stream = await s.async_openai().chat.completions.create(
            model=MODEL, messages=ASK, tools=[WEATHER], tool_choice="required", max_tokens=400,
            stream=True, extra_body={"weft": {"tool_dispatch": True}},
        )  # fmt: skip
        calls = s.tool_calls(stream, on_chunk=lambda c: events.append(c.model_extra))
        found = [call async for call in calls]
        async with asyncio.timeout(DEADLINE_S):
            assert [await dispatched.get() for _ in found] == found
    sent = [extra["tool_call"] for extra in events if "tool_call" in extra]
    assert [(t["id"], t["function"]["arguments"]) for t in sent] == [
        (call.id, call.arguments) for call in found
    ]
    assert found


@pytest.mark.anyio
async def test_an_extended_prefill_gives_the_same_answer(stack):
    more = [*ASK, {"role": "user", "content": "And in Rome?"}]
    whole = {"model": MODEL, "messages": more, "max_tokens": 24, "temperature": 0}
    async with Session(stack.url) as s, s.async_openai() as client:
        hints = s.async_hints(client)
        plain = await client.chat.completions.create(**whole)
        prefill = await hints.submit_partial_prefill(MODEL, ASK, ttl_s=30)
        extended = await hints.extend_prefill(prefill, **whole)
        assert extended.choices[0].message == plain.choices[0].message
        other = await hints.submit_partial_prefill(MODEL, [{"role": "user", "content": "No"}])
        with pytest.raises(openai.ConflictError):
            await hints.extend_prefill(other, **whole)
        await hints.discard_prefill(other)
        with pytest.raises(openai.NotFoundError):
            await hints.extend_prefill(other, **whole)
        await hints.tag_kv_blocks([(0, 1, "USER_QUERY")], ttl_s=30)
        await hints.set_reuse_priority(1, ttl_s=30)


@pytest.mark.anyio
async def test_run_tools_prefills_while_a_tool_runs(stack):
    key = {"authorization": "Bearer none"}
    async with (
        Session(stack.url) as s,
        httpx.AsyncClient(base_url=stack.url, headers=key) as client,
    ):

        async def slow(city, unit):
            """Wait until the prefill is the second call of the program, next to the one that called
            the tool.
            """
            async with asyncio.timeout(DEADLINE_S):
                while (  # noqa: ASYNC110
                    (await client.get(f"/v1/sessions/{s.id}")).json()["calls"] < 2
                ):
                    await asyncio.sleep(0.02)
            return unit

        tool = Tool("get_weather", slow, parameters=WEATHER["function"]["parameters"])
        run = await s.run_tools(
            model=MODEL, messages=ASK, tools=[tool], tool_choice=FORCED, max_turns=2, max_tokens=200
        )
        trace = (await client.get(f"/v1/sessions/{s.id}/story")).json()
    assert run.turns == 2
    assert run.extended == 1
    assert set(trace["saved_s"]) == {"prefill", "dispatch"}
    assert isinstance(run.answer, str)


def test_an_unknown_model_raises_not_found(stack):
    with Session(stack.url) as s, pytest.raises(openai.NotFoundError):
        s.openai().chat.completions.create(model="nobody", messages=ASK)
