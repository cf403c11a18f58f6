"""Embeddings of a real pooling engine, with the real OpenAI client."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import openai
import pytest
from support.stack import Stack

pytestmark = [pytest.mark.system, pytest.mark.engine]


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    """Start an embedding engine instead of a generating one."""
    stack = Stack("--replicas", "1", "--", "--runner", "pooling", "--convert", "embed")
    yield stack
    assert stack.stop() == 0


@pytest.fixture
def client(stack: Stack) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{stack.url}/v1", api_key="none", max_retries=0)


def test_an_embeddings_call_belongs_to_its_program(stack, client):
    answer = client.embeddings.create(
        model="weft-demo",
        input=["a flight to Rome", "a train to Paris", "a flight to Rome"],
        extra_headers={"x-weft-program": "embedder"},
    )
    one, other, again = (item.embedding for item in answer.data)
    assert len(one) == len(other) == 64
    assert one == again != other
    assert answer.usage.prompt_tokens > 0
    key = {"authorization": "Bearer none"}
    session = httpx.get(f"{stack.url}/v1/sessions/embedder", headers=key).json()
    assert (session["calls"], session["calls_in_flight"], session["errors"]) == (1, 0, 0)


def test_a_text_that_is_too_long_has_the_code_of_openai(client):
    with pytest.raises(openai.BadRequestError) as refused:
        client.embeddings.create(model="weft-demo", input="word " * 60_000)
    assert (refused.value.code, refused.value.param) == ("context_length_exceeded", "input")


def test_a_chat_with_an_embedding_engine_is_a_client_error(client):
    with pytest.raises(openai.APIStatusError) as refused:
        client.chat.completions.create(
            model="weft-demo", messages=[{"role": "user", "content": "hello"}]
        )
    assert 400 <= refused.value.status_code < 500
