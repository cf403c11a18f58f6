"""The real OpenAI client against real vLLM. The only change is `base_url`."""

from __future__ import annotations

import json
import re
from uuid import uuid4

import httpx
import openai
import pytest
from pydantic import BaseModel

pytestmark = [pytest.mark.system, pytest.mark.engine]

MODEL = "weft-demo"
ASK = [{"role": "user", "content": "Tell me about the sea."}]
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "maxLength": 20},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
            },
            "required": ["city", "unit"],
            "additionalProperties": False,
        },
    },
}


@pytest.fixture
def client(stack):
    with openai.OpenAI(base_url=f"{stack.url}/v1", api_key="test", max_retries=0) as client:
        yield client


def direct(stack):
    """Return the same client, connected directly to an engine."""
    return openai.OpenAI(base_url=f"{stack.replicas[0]}/v1", api_key="none", max_retries=0)


def test_a_plain_answer_equals_that_of_the_engine(stack, client):
    options = {"model": MODEL, "messages": ASK, "max_tokens": 24, "temperature": 0, "seed": 1}
    ours = client.chat.completions.create(**options)
    theirs = direct(stack).chat.completions.create(**options)
    assert ours.choices[0].message == theirs.choices[0].message
    assert ours.usage == theirs.usage
    assert ours.usage.prompt_tokens_details is not None
    assert ours.choices[0].message.content


def test_plain_and_streamed_chats_have_equal_content(client):
    options = {"model": MODEL, "messages": ASK, "max_tokens": 24, "temperature": 0}
    plain = client.chat.completions.create(**options)
    chunks = list(
        client.chat.completions.create(
            **options, stream=True, stream_options={"include_usage": True}
        )
    )
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == plain.choices[0].message.content
    assert chunks[-1].usage.completion_tokens == plain.usage.completion_tokens


def test_a_plain_body_equals_that_of_the_engine_except_for_its_ids(stack):
    def answer(url):
        body = {"model": MODEL, "messages": ASK, "max_tokens": 8, "temperature": 0}
        parsed = httpx.post(f"{url}/v1/chat/completions", json=body).json()
        return {k: v for k, v in parsed.items() if k not in ("id", "created", "system_fingerprint")}

    assert answer(stack.url) == answer(stack.replicas[0])


def test_a_stream_keeps_its_frames_without_the_report(stack):
    # The engine's speed decides how many tokens share a frame, so the test requests one token.
    def frames(url):
        body = {"model": MODEL, "messages": ASK, "max_tokens": 1, "temperature": 0, "stream": True}
        raw = httpx.post(f"{url}/v1/chat/completions", json=body).content
        return re.sub(rb'"(id|created|system_fingerprint)":("[^"]*"|[0-9]+)', b"", raw)

    assert frames(stack.url) == frames(stack.replicas[0])


def test_a_chat_has_several_choices_and_logprobs(client):
    answer = client.chat.completions.create(
        model=MODEL, messages=ASK, n=3, max_tokens=5, logprobs=True, top_logprobs=2
    )
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert len(answer.choices[0].logprobs.content[0].top_logprobs) == 2


def test_structured_output_is_parsed_by_the_client(client):
    class Answer(BaseModel):
        number: int
        sure: bool

    answer = client.chat.completions.parse(
        model=MODEL, messages=ASK, response_format=Answer, max_tokens=400, temperature=0
    )
    assert isinstance(answer.choices[0].message.parsed, Answer)


@pytest.mark.parametrize(
    "choice", ["required", {"type": "function", "function": {"name": "get_weather"}}]
)
def test_tool_calls_are_parsed_by_the_engine(client, choice):
    answer = client.chat.completions.create(
        model=MODEL, messages=ASK, tools=[TOOL], tool_choice=choice, max_tokens=400, seed=3
    )
    call = answer.choices[0].message.tool_calls[0]
    assert call.function.name == "get_weather"
    arguments = json.loads(call.function.arguments)
    assert arguments["unit"] in ("celsius", "fahrenheit")
    back = [
        *ASK,
        answer.choices[0].message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": '{"temperature": 21}'},
    ]
    again = client.chat.completions.create(model=MODEL, messages=back, tools=[TOOL], max_tokens=8,
                                           tool_choice="none")  # fmt: skip
    assert again.choices[0].finish_reason in ("length", "stop")


def test_tool_calls_are_streamed(client):
    stream = client.chat.completions.create(
        model=MODEL, messages=ASK, tools=[TOOL], tool_choice="required", max_tokens=400,
        stream=True, seed=3,
    )  # fmt: skip
    pieces = [
        call.function.arguments or ""
        for chunk in stream
        if chunk.choices
        for call in chunk.choices[0].delta.tool_calls or []
    ]
    assert json.loads("".join(pieces))["unit"] in ("celsius", "fahrenheit")


def test_plain_and_streamed_completions_have_equal_text(client):
    options = {"model": MODEL, "prompt": "The sea is", "max_tokens": 8, "temperature": 0}
    plain = client.completions.create(**options).choices[0].text
    assert plain == "".join(
        c.choices[0].text for c in client.completions.create(**options, stream=True)
    )


def test_plain_and_streamed_responses_have_equal_text(client):
    options = {"model": MODEL, "input": "Hello", "max_output_tokens": 8, "temperature": 0}
    plain = client.responses.create(**options)
    assert plain.status in ("completed", "incomplete")
    events = list(client.responses.create(**options, stream=True))
    assert events[0].type == "response.created"
    assert events[-1].type in ("response.completed", "response.incomplete")
    assert events[-1].response.output_text == plain.output_text
    assert events[-1].response.usage.output_tokens == plain.usage.output_tokens > 0


@pytest.mark.parametrize("stream", [False, True])
def test_a_continued_response_keeps_its_context_and_program(stack, client, stream):
    options = {"model": MODEL, "max_output_tokens": 4, "stream": stream}
    # The question is unique, because a repeat belongs to the program that it repeats.
    asked = f"Tell me about the sea, and about ship {uuid4()} that crosses it. " * 10
    first = client.responses.with_raw_response.create(input=asked, **options)
    answer = list(first.parse())[-1].response if stream else first.parse()
    more = client.responses.create(input="Go on", previous_response_id=answer.id, **options)
    more = list(more)[-1].response if stream else more
    assert more.previous_response_id == answer.id
    assert more.usage.input_tokens > answer.usage.input_tokens
    program = first.headers["x-weft-program"]
    session = httpx.get(
        f"{stack.url}/v1/sessions/{program}", headers={"authorization": "Bearer test"}
    ).json()
    assert (session["calls"], session["errors"]) == (2, 0)


@pytest.mark.parametrize("way", ["plain", "stream", "WebSocket", "references"])
def test_a_continued_response_has_the_prompt_of_the_whole_history(client, way):
    """Token by token: with a tool call and its output, reasoning, and texts of both sides."""
    ended = ("response.completed", "response.incomplete", "response.failed", "error")
    function = {**TOOL["function"], "type": "function", "strict": True}
    asked = {
        "model": MODEL, "max_output_tokens": 200, "tools": [function],
        "extra_body": {"enable_response_messages": True}, "stream": way == "stream",
    }  # fmt: skip

    def answered(**members):
        got = client.responses.create(**asked, **members)
        return next(e for e in got if e.type in ended).response if asked["stream"] else got

    def tokens(response):
        return [message["tokens"] for message in response.model_extra["input_messages"]]

    before = [
        {"role": "user", "content": "Tell me about the sea."},
        {
            "type": "reasoning", "id": "rs_1", "summary": [],
            "content": [{"type": "reasoning_text", "text": "The sea is wide."}],
        },
        {"role": "assistant", "content": "It is wide."},
        {"role": "user", "content": [{"type": "input_text", "text": "And the weather in Oslo?"}]},
    ]  # fmt: skip
    first = answered(input=before, tool_choice="required")
    [call] = [item for item in first.output if item.type == "function_call"]
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "21 degrees"}
    if way == "WebSocket":
        with client.responses.connect() as connection:
            turn = {"type": "response.create", "input": [result], "previous_response_id": first.id}
            members = {key: asked[key] for key in ("model", "max_output_tokens", "tools")}
            connection.send_raw(json.dumps({**members, **asked["extra_body"], **turn}))
            second = next(event for event in connection if event.type in ended).response
    elif way == "references":
        named = [{"type": "item_reference", "id": item.id} for item in first.output]
        second = answered(input=[*before, *named, result])
    else:
        second = answered(input=[result], previous_response_id=first.id)
    whole = answered(input=[*before, *first.output, result], store=False)
    assert tokens(second) == tokens(whole)
    assert second.usage.input_tokens == whole.usage.input_tokens > first.usage.input_tokens
    # Once more, with an answer of text in the middle.
    third = answered(input="And tomorrow?", previous_response_id=second.id)
    more = [*before, *first.output, result, *second.output]
    whole = answered(input=[*more, {"role": "user", "content": "And tomorrow?"}], store=False)
    assert tokens(third) == tokens(whole)


def test_the_clients_websocket_continues_responses_with_store_false(client):
    """Continue with text, a tool call and its result, each as new items after the previous
    response.
    """
    ended = ("response.completed", "response.incomplete", "response.failed", "error")
    asked = {"model": MODEL, "store": False, "max_output_tokens": 60}
    function = {**TOOL["function"], "type": "function", "strict": True}
    with client.responses.connect() as connection:

        def turn(**members):
            connection.response.create(**asked, **members)
            event = next(event for event in connection if event.type in ended)
            assert event.type in ended[:2], event
            return event.response

        first = turn(input="Tell me about the sea, and the ships that cross it.")
        second = turn(
            input="What is the weather in Oslo?", previous_response_id=first.id,
            tools=[function], tool_choice="required",
        )  # fmt: skip
        assert second.usage.input_tokens > first.usage.total_tokens
        [call] = [item for item in second.output if item.type == "function_call"]
        result = {"type": "function_call_output", "call_id": call.call_id, "output": "21 degrees"}
        third = turn(input=[result], previous_response_id=second.id)
        assert third.usage.input_tokens > first.usage.total_tokens


def test_the_prompt_of_a_coding_agent_fits_the_demo_model(client):
    """Coding agents start with up to 40,000 tokens of this model and request thousands more."""
    words = "The ship crosses the sea and the captain tells the crew about the harbour. " * 2_600
    answer = client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": words}], max_tokens=4
    )
    assert 36_000 < answer.usage.prompt_tokens < 49_152


def test_models_are_listed_and_retrieved(client):
    assert [model.id for model in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).id == MODEL
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("nobody/else")


def test_an_unknown_model_raises_not_found(client):
    with pytest.raises(openai.NotFoundError) as raised:
        client.chat.completions.create(model="gpt-unknown", messages=ASK)
    assert raised.value.code == "model_not_found"


def test_an_engine_error_keeps_its_status_and_reason(stack):
    body = {"model": MODEL, "messages": ASK, "max_tokens": -1}
    ours, theirs = (
        httpx.post(f"{url}/v1/chat/completions", json=body)
        for url in (stack.url, stack.replicas[0])
    )
    assert ours.status_code == theirs.status_code == 400
    error, said = ours.json()["error"], theirs.json()["error"]
    # vLLM adds the parameter and its value to the text.
    assert said["message"].startswith(error["message"])
    assert (error["type"], error["param"]) == ("invalid_request_error", said["param"])
    assert error["code"] is None


@pytest.mark.anyio
async def test_the_async_client_reads_plain_and_streamed_chats(stack):
    async with openai.AsyncOpenAI(base_url=f"{stack.url}/v1", api_key="test") as client:
        options = {"model": MODEL, "messages": ASK, "max_tokens": 12, "temperature": 0}
        plain = await client.chat.completions.create(**options)
        stream = await client.chat.completions.create(**options, stream=True)
        text = "".join([c.choices[0].delta.content or "" async for c in stream])
        assert text == plain.choices[0].message.content


@pytest.mark.parametrize("stream", [False, True])
def test_a_session_has_the_service_and_waiting_of_the_engine(stack, client, stream):
    program = f"p-{uuid4()}"
    answer = client.chat.completions.create(
        model=MODEL, messages=ASK, max_tokens=40, stream=stream, extra_body={"ignore_eos": True},
        extra_headers={"x-weft-program": program},
    )  # fmt: skip
    if stream:
        list(answer)
    session = httpx.get(
        f"{stack.url}/v1/sessions/{program}", headers={"authorization": "Bearer test"}
    ).json()
    assert session["service_s"] > 0
    assert session["waiting_s"] > 0
    assert session["output_tokens"] == 40
    assert session["calls"] == 1
    assert session["calls_in_flight"] == 0


def test_the_path_can_set_the_program(stack):
    client = openai.OpenAI(base_url=f"{stack.url}/p/trip%20one/v1", api_key="test")
    raw = client.chat.completions.with_raw_response.create(model=MODEL, messages=ASK, max_tokens=2)
    assert raw.headers["x-weft-program"] == "trip%20one"
    assert raw.headers["x-weft-replica"]
    assert raw.headers["x-request-id"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_cannot_choose_the_id_of_a_stored_response(client, stream):
    name = "resp_of_another_tenant"
    options = {"model": MODEL, "input": "Hello", "max_output_tokens": 4, "stream": stream}
    got = client.responses.create(**options, extra_body={"request_id": name})
    events = list(got) if stream else []
    answer = events[0].response if stream else got
    assert answer.id.startswith("resp_")
    assert answer.id != name


def test_the_id_of_a_chat_answer_comes_from_the_call(client):
    mine = {"x-request-id": "mine"}
    options = {"model": MODEL, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2}
    got = client.chat.completions.with_raw_response.create(
        **options, extra_headers=mine, extra_body={"request_id": "mine"}
    )
    assert got.headers["x-request-id"] == "mine"
    assert got.parse().id.startswith("chatcmpl-call-")
