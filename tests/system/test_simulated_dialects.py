"""The OpenAI and Anthropic clients read the answers of a simulated replica."""

from __future__ import annotations

import json

import anthropic
import openai
import pytest
from support.simulated_replica import simulated_replica
from weft_bench.simulated.tokens import words

pytestmark = pytest.mark.system

ASKED = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Which flights?"}]
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city", "days"],
}
ARGUMENTS = {"city": "simulated", "days": 1}


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    folder = tmp_path_factory.mktemp("replica")
    with simulated_replica(folder, "--speed-up", "1000", "--answer-tokens", "12") as url:
        yield url


@pytest.fixture(scope="module")
def client(url):
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def claude(url):
    with anthropic.Anthropic(base_url=url, api_key="none", max_retries=0) as client:
        yield client


@pytest.mark.parametrize(
    ("limits", "count", "finish"),
    [
        ({}, 12, "stop"),
        ({"max_tokens": 5}, 5, "length"),
        ({"max_completion_tokens": 500}, 12, "stop"),
        ({"max_tokens": 40, "extra_body": {"ignore_eos": True}}, 40, "length"),
    ],
)
def test_plain_and_streamed_chats_have_equal_content(client, limits, count, finish):
    asked = {"model": "simulated", "messages": ASKED, **limits}
    plain = client.chat.completions.create(**asked)
    chunks = list(
        client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True})
    )
    pieces = [
        c.choices[0].delta.content for c in chunks if c.choices and c.choices[0].delta.content
    ]
    assert plain.choices[0].message.content == "".join(pieces) == words(count)
    assert len(pieces) == count, "a frame has more than one token"
    assert plain.choices[0].finish_reason == chunks[-2].choices[0].finish_reason == finish
    assert plain.usage.completion_tokens == chunks[-1].usage.completion_tokens == count
    assert plain.usage.prompt_tokens == chunks[-1].usage.prompt_tokens
    assert len({c.id for c in chunks} | {plain.id}) == 2


def test_the_next_turn_finds_prompt_and_answer_in_the_cache(client):
    asked = [{"role": "user", "content": "a question of its own " * 40}]
    first = client.chat.completions.create(model="simulated", messages=asked)
    asked += [first.choices[0].message.model_dump(exclude_none=True), *ASKED[1:]]
    second = client.chat.completions.create(model="simulated", messages=asked)
    assert first.usage.prompt_tokens_details.cached_tokens == 0
    whole = first.usage.prompt_tokens + first.usage.completion_tokens
    # The KV of the last token is never computed, because no token follows it.
    assert second.usage.prompt_tokens_details.cached_tokens == (whole - 1) // 16 * 16


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "go"}}])
def test_a_chat_calls_a_required_tool(client, choice):
    tools = [{"type": "function", "function": {"name": "go", "parameters": SCHEMA}}]
    asked = {"model": "simulated", "messages": ASKED, "tools": tools, "tool_choice": choice}
    plain = client.chat.completions.create(**asked).choices[0]
    (call,) = plain.message.tool_calls
    with client.chat.completions.stream(**asked) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion().choices[0]
    (streamed,) = final.message.tool_calls
    for one in (call, streamed):
        assert one.function.name == "go"
        assert json.loads(one.function.arguments) == ARGUMENTS
    assert plain.finish_reason == final.finish_reason == "tool_calls"


def test_completions_accept_text_and_token_ids(client):
    for prompt, count in (("Once upon a time", 4), ([3, 1, 4, 1, 5], 5)):
        asked = {"model": "simulated", "prompt": prompt, "max_tokens": 6}
        plain = client.completions.create(**asked)
        chunks = list(client.completions.create(**asked, stream=True))
        assert plain.choices[0].text == "".join(c.choices[0].text for c in chunks) == words(6)
        assert plain.usage.prompt_tokens == count
        assert chunks[-1].choices[0].finish_reason == "length"


def test_responses_are_plain_streamed_and_continued(client):
    plain = client.responses.create(model="simulated", instructions="Be brief.", input="Hello")
    with client.responses.stream(
        model="simulated", instructions="Be brief.", input="Hello", max_output_tokens=5
    ) as stream:
        kinds = [event.type for event in stream]
        final = stream._state._completed_response
    assert plain.output_text == words(12)
    assert kinds.count("response.output_text.delta") == 5
    assert kinds[-1] == "response.incomplete"
    assert final is None
    more = client.responses.create(
        model="simulated", input="And then?", previous_response_id=plain.id
    )
    assert more.usage.input_tokens > plain.usage.total_tokens
    with pytest.raises(openai.NotFoundError):
        client.responses.create(model="simulated", input="x", previous_response_id="resp-none")


def test_a_response_calls_a_required_tool(client):
    tools = [{"type": "function", "name": "go", "parameters": SCHEMA, "strict": False}]
    asked = {"model": "simulated", "input": "x", "tools": tools, "tool_choice": "required"}
    plain = client.responses.create(**asked)
    with client.responses.stream(**asked) as stream:
        final = stream.get_final_response()
    for response in (plain, final):
        (call,) = response.output
        assert (call.type, call.name, json.loads(call.arguments)) == (
            "function_call", "go", ARGUMENTS,
        )  # fmt: skip


def test_messages_are_plain_streamed_and_call_a_tool(claude):
    asked = {"model": "simulated", "max_tokens": 6, "system": "Be brief.", "messages": ASKED[1:]}
    plain = claude.messages.create(**asked)
    with claude.messages.stream(**asked) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert plain.content[0].text == text == words(6)
    assert plain.stop_reason == final.stop_reason == "max_tokens"
    assert final.usage.output_tokens == 6
    tools = [{"name": "go", "input_schema": SCHEMA}]
    forced = {"tools": tools, "tool_choice": {"type": "tool", "name": "go"}, "max_tokens": 100}
    plain = claude.messages.create(**(asked | forced))
    with claude.messages.stream(**(asked | forced)) as stream:
        final = stream.get_final_message()
    for message in (plain, final):
        assert message.stop_reason == "tool_use"
        assert (message.content[0].name, message.content[0].input) == ("go", ARGUMENTS)


def test_count_tokens_equals_the_input_tokens_of_a_message(claude):
    asked = {"model": "simulated", "system": "Be brief.", "messages": ASKED[1:]}
    tools = [{"name": "go", "input_schema": SCHEMA}]
    counted = claude.messages.count_tokens(**asked).input_tokens
    assert counted == claude.messages.create(**asked, max_tokens=6).usage.input_tokens
    assert claude.messages.count_tokens(**asked, tools=tools).input_tokens > counted
    with pytest.raises(anthropic.BadRequestError) as raised:
        claude.messages.count_tokens(model="simulated", messages=[])
    assert raised.value.body["type"] == "error"
    assert raised.value.body["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("wrong", "status", "named"),
    [
        ({"model": "gpt-4"}, 404, "gpt-4"),
        ({"messages": []}, 400, "messages"),
        ({"messages": ["hello"]}, 400, "object"),
        ({"max_tokens": 0}, 400, "max_tokens"),
        ({"n": 2}, 400, "n above 1"),
        ({"tools": [], "tool_choice": "required"}, 400, "tool_choice"),
        ({"messages": [{"role": "user", "content": "x" * 600_000}]}, 400, "maximum context"),
    ],
    ids=str,
)
def test_invalid_calls_are_refused_with_a_reason(client, wrong, status, named):
    with pytest.raises(openai.APIStatusError, match=named) as raised:
        client.chat.completions.create(**({"model": "simulated", "messages": ASKED} | wrong))
    assert raised.value.status_code == status
