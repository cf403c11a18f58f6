"""The real clients of OpenAI and Anthropic understand what a simulated replica says."""

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
def test_chat_plain_and_streamed_say_the_same(client, limits, count, finish):
    asked = {"model": "simulated", "messages": ASKED, **limits}
    plain = client.chat.completions.create(**asked)
    chunks = list(
        client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True})
    )
    said = [c.choices[0].delta.content for c in chunks if c.choices and c.choices[0].delta.content]
    assert plain.choices[0].message.content == "".join(said) == words(count)
    assert len(said) == count, "each token is a frame of its own"
    assert plain.choices[0].finish_reason == chunks[-2].choices[0].finish_reason == finish
    assert plain.usage.completion_tokens == chunks[-1].usage.completion_tokens == count
    assert plain.usage.prompt_tokens == chunks[-1].usage.prompt_tokens
    assert len({c.id for c in chunks} | {plain.id}) == 2


def test_the_next_turn_finds_its_prompt_and_the_answer_in_the_cache(client):
    asked = [{"role": "user", "content": "a question of its own " * 40}]
    first = client.chat.completions.create(model="simulated", messages=asked)
    asked += [first.choices[0].message.model_dump(exclude_none=True), *ASKED[1:]]
    second = client.chat.completions.create(model="simulated", messages=asked)
    assert first.usage.prompt_tokens_details.cached_tokens == 0
    whole = first.usage.prompt_tokens + first.usage.completion_tokens
    # The last token was never computed: nothing followed from it.
    assert second.usage.prompt_tokens_details.cached_tokens == (whole - 1) // 16 * 16


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "go"}}])
def test_chat_calls_a_tool_that_is_forced(client, choice):
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


def test_completions_of_text_and_of_ids(client):
    for prompt, count in (("Once upon a time", 4), ([3, 1, 4, 1, 5], 5)):
        asked = {"model": "simulated", "prompt": prompt, "max_tokens": 6}
        plain = client.completions.create(**asked)
        chunks = list(client.completions.create(**asked, stream=True))
        assert plain.choices[0].text == "".join(c.choices[0].text for c in chunks) == words(6)
        assert plain.usage.prompt_tokens == count
        assert chunks[-1].choices[0].finish_reason == "length"


def test_responses_plain_streamed_and_continued(client):
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


def test_responses_call_a_tool_that_is_forced(client):
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


def test_messages_plain_streamed_and_with_a_tool(claude):
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


def test_messages_are_counted_as_they_are_served(claude):
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
def test_what_cannot_be_served_is_refused_by_name(client, wrong, status, named):
    with pytest.raises(openai.APIStatusError, match=named) as raised:
        client.chat.completions.create(**({"model": "simulated", "messages": ASKED} | wrong))
    assert raised.value.status_code == status
