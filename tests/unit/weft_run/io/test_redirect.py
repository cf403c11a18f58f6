"""Chat calls of rows reach the run, through OpenAI's own clients."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import openai
import pytest
from weft_run.io import redirect
from weft_run.io.caller import body_of
from weft_run.io.errors import CallFailed
from weft_run.language.requests import ChatRequest
from weft_run.language.signature import signature
from weft_run.plan.commands import Failure

NOWHERE = {"base_url": "http://127.0.0.1:9/v1", "api_key": "x"}
ASK: Any = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "temperature": 0}
CALLS = [
    {"id": f"c{n}", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    for n in range(2)
]
MESSAGE = {"role": "assistant", "content": "hello", "tool_calls": CALLS}
ANSWER = {
    "id": "1", "object": "chat.completion", "created": 1, "model": "m",
    "choices": [{"index": 0, "message": MESSAGE, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
}  # fmt: skip


class Run:
    """A run whose calls end with a fixed answer or failure."""

    def __init__(self, failure: Failure | None = None) -> None:
        self.requests: list[ChatRequest] = []
        self._failure = failure

    def ask(self, node: str, request: ChatRequest) -> Future[Any]:
        self.requests.append(request)
        found: Future[Any] = Future()
        if self._failure is None:
            found.set_result(ANSWER)
        else:
            found.set_exception(CallFailed(self._failure))
        return found

    def thread(self, work: Callable[[], Any]) -> Any:
        """Do some work of a row in a thread, as LangGraph does."""

        async def row() -> Any:
            redirect.ROW.set(redirect.Row(self.ask, asyncio.get_running_loop()))
            return await asyncio.to_thread(work)

        redirect.install()
        return asyncio.run(row())

    def task(self, work: Callable[[], Any]) -> Any:
        """Do some asynchronous work of a row."""

        async def row() -> Any:
            redirect.ROW.set(redirect.Row(self.ask, asyncio.get_running_loop()))
            return await work()

        redirect.install()
        return asyncio.run(row())


def test_calls_of_both_clients_are_equal_requests() -> None:
    run = Run()

    async def call() -> Any:
        return await openai.AsyncOpenAI(**NOWHERE).chat.completions.create(**ASK)

    results = [
        run.thread(lambda: openai.OpenAI(**NOWHERE).chat.completions.create(**ASK)),
        run.task(call),
    ]
    assert [one.choices[0].message.content for one in results] == ["hello", "hello"]
    keys = {signature(one) for one in run.requests}
    assert len(keys) == 1
    assert None not in keys
    assert body_of(run.requests[0]) == ASK


def test_streams_contain_the_whole_answer() -> None:
    run = Run()

    def read() -> list[Any]:
        with openai.OpenAI(**NOWHERE).chat.completions.create(**ASK, stream=True) as stream:
            return list(stream)

    async def read_async() -> list[Any]:
        client = openai.AsyncOpenAI(**NOWHERE)
        return [one async for one in await client.chat.completions.create(**ASK, stream=True)]

    for events in (run.thread(read), run.task(read_async)):
        (event,) = events
        delta = event.choices[0].delta
        assert (delta.content, event.choices[0].finish_reason) == ("hello", "stop")
        assert [(one.index, one.id) for one in delta.tool_calls] == [(0, "c0"), (1, "c1")]
        assert event.usage.total_tokens == 2
    assert body_of(run.requests[0]) == ASK


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("http_400", openai.BadRequestError),
        ("http_404", openai.NotFoundError),
        ("timeout", openai.InternalServerError),
    ],
)
def test_failures_are_errors_of_the_client(code: str, error: type[Exception]) -> None:
    run = Run(Failure(code, "poison"))
    with pytest.raises(error, match="poison"):
        run.thread(lambda: openai.OpenAI(**NOWHERE).chat.completions.create(**ASK))
    # The client does not repeat it: the run has done so.
    assert len(run.requests) == 1


def test_calls_that_the_run_cannot_make_are_refused() -> None:
    run = Run()
    with pytest.raises(openai.BadRequestError, match="Responses API"):
        run.thread(lambda: openai.OpenAI(**NOWHERE).responses.create(model="m", input="x"))

    async def blocks() -> Any:
        return openai.OpenAI(**NOWHERE).chat.completions.create(**ASK)

    with pytest.raises(openai.BadRequestError, match="without await"):
        run.task(blocks)
    assert not run.requests


def test_other_requests_are_not_redirected() -> None:
    run = Run()
    client = openai.OpenAI(**NOWHERE, max_retries=0)
    with pytest.raises(openai.APIConnectionError):
        run.thread(lambda: client.embeddings.create(model="m", input="x"))
    with pytest.raises(openai.APIConnectionError):
        client.chat.completions.create(**ASK)
    assert not run.requests


def test_a_request_keeps_all_fields_of_messages() -> None:
    message = {"tool_call_id": "c0", "role": "tool", "content": "x"}
    body = {"model": "m", "messages": [message], "tools": [], "stream": True}
    request = redirect.chat_request(body)
    assert body_of(request) == {"model": "m", "messages": [message], "tools": []}
