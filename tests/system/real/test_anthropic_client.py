"""The real Anthropic client against real vLLM. The only change is `base_url`."""

from __future__ import annotations

import anthropic
import httpx
import pytest

pytestmark = [pytest.mark.system, pytest.mark.engine]

OPTIONS = {
    "model": "weft-demo",
    "max_tokens": 16,
    "extra_body": {"temperature": 0},
    "messages": [{"role": "user", "content": "Tell me about the sea."}],
}


@pytest.fixture
def client(stack):
    with anthropic.Anthropic(base_url=stack.url, api_key="test", max_retries=0) as client:
        yield client


def test_plain_and_streamed_messages_have_equal_content(client):
    plain = client.messages.create(**OPTIONS)
    with client.messages.stream(**OPTIONS) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == plain.content[0].text
    assert final.usage.output_tokens == plain.usage.output_tokens


@pytest.mark.anyio
async def test_the_async_client_reads_plain_and_streamed_messages(stack):
    async with anthropic.AsyncAnthropic(base_url=stack.url, api_key="test") as client:
        plain = await client.messages.create(**OPTIONS)
        async with client.messages.stream(**OPTIONS) as stream:
            text = "".join([piece async for piece in stream.text_stream])
        assert text == plain.content[0].text


def test_count_tokens_equals_the_input_tokens_of_a_message(client):
    asked = {"model": OPTIONS["model"], "messages": OPTIONS["messages"], "system": "Be brief."}
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    counted = client.messages.count_tokens(**asked).input_tokens
    assert counted == client.messages.create(**asked, max_tokens=4).usage.input_tokens
    tools = [{"name": "go", "input_schema": schema}]
    assert client.messages.count_tokens(**asked, tools=tools).input_tokens > counted
    with pytest.raises(anthropic.BadRequestError) as raised:
        client.messages.count_tokens(model=OPTIONS["model"], messages=[])
    assert raised.value.body["type"] == "error"


def test_errors_have_the_format_of_anthropic(client):
    with pytest.raises(anthropic.NotFoundError) as raised:
        client.messages.create(**{**OPTIONS, "model": "nobody"})
    assert raised.value.body["type"] == "error"
    assert raised.value.body["error"]["type"] == "not_found_error"
    assert "nobody" in raised.value.body["error"]["message"]


@pytest.mark.parametrize("wrong", [{"max_tokens": -1}, {"messages": "hello"}])
def test_an_engine_error_keeps_status_and_message_in_the_format_of_anthropic(stack, wrong):
    body = {"model": "weft-demo", "max_tokens": 4, "messages": OPTIONS["messages"]} | wrong
    ours, theirs = (
        httpx.post(f"{url}/v1/messages", json=body) for url in (stack.url, stack.replicas[0])
    )
    assert ours.status_code == theirs.status_code == 400
    assert ours.json()["type"] == "error"
    error = ours.json()["error"]
    assert error["type"] == "invalid_request_error"
    for word in ("ctx", "ValueError", "parameter=", "'loc'"):
        assert word not in error["message"]
    assert next(iter(wrong)) in error["message"]
