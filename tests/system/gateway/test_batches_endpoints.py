"""Batches of all endpoints: their answers, their usage, and endpoints that have no batches."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from support.batches import CHAT, client_of, content, lines, run, upload

pytestmark = [pytest.mark.system, pytest.mark.anyio]

COMPLETION_USAGE = {
    "prompt_tokens": 5,
    "completion_tokens": 2,
    "total_tokens": 7,
    "prompt_tokens_details": {"cached_tokens": 4},
}
# By endpoint: a request, the engine's answer, and the tokens: input, cached, output, reasoning.
ENDPOINTS: dict[str, tuple[dict[str, Any], dict[str, Any], tuple[int, int, int, int]]] = {
    CHAT: (
        {"messages": [{"role": "user", "content": "Hi"}]},
        {"object": "chat.completion", "choices": [], "usage": COMPLETION_USAGE},
        (5, 4, 2, 0),
    ),
    "/v1/completions": (
        {"prompt": "Hi"},
        {"object": "text_completion", "choices": [], "usage": COMPLETION_USAGE},
        (5, 4, 2, 0),
    ),
    "/v1/embeddings": (
        {"input": "Hi"},
        {"object": "list", "data": [], "usage": {"prompt_tokens": 3, "total_tokens": 3}},
        (3, 0, 0, 0),
    ),
    "/v1/responses": (
        {"input": "Hi"},
        {
            "id": "resp_1",
            "object": "response",
            "output": [],
            "usage": {
                "input_tokens": 6,
                "input_tokens_details": {"cached_tokens": 1},
                "output_tokens": 4,
                "output_tokens_details": {"reasoning_tokens": 3},
                "total_tokens": 10,
            },
        },
        (6, 1, 4, 3),
    ),
}


def asked(endpoint: str, number: int, **more: Any) -> dict[str, Any]:
    body = {"model": "tiny"} | ENDPOINTS[endpoint][0] | more
    return {"custom_id": f"row-{number}", "method": "POST", "url": endpoint, "body": body}


def used(batch: Any) -> tuple[int, int, int, int]:
    usage = batch.usage
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens
    return (
        usage.input_tokens,
        usage.input_tokens_details.cached_tokens,
        usage.output_tokens,
        usage.output_tokens_details.reasoning_tokens,
    )


async def answer(wire: Any, request: Any) -> None:
    if "bad" in request.json:
        usage = {"usage": {"prompt_tokens": 99}}
        await wire.plain({"error": {"message": "bad"}} | usage, "400 Bad Request")
    else:
        await wire.plain(ENDPOINTS[request.target][1])


@pytest.mark.parametrize("endpoint", ENDPOINTS)
async def test_a_batch_of_an_endpoint(endpoint: str, engine: Any, weft: Any) -> None:
    requests = [asked(endpoint, number) for number in range(10)]
    failing = [asked(endpoint, 10, bad=1), asked(endpoint, 11, stream=True)]
    async with engine(script=answer) as stub, weft(stub) as gateway, client_of(gateway) as client:
        batch = await run(client, lines(*requests, *failing), endpoint=endpoint)
        assert batch.status == "completed"
        assert batch.request_counts.completed == 10
        # Failed requests have no usage. Copies have that of the answer that they share.
        assert used(batch) == tuple(10 * count for count in ENDPOINTS[endpoint][2])
        found = await content(client, batch.output_file_id)
        bodies = [one["response"]["body"] for one in found.values()]
        assert all(body == ENDPOINTS[endpoint][1] for body in bodies)
        assert {request.target for request in stub.requests} == {endpoint}
        assert set(await content(client, batch.error_file_id)) == {"row-10", "row-11"}


@pytest.mark.parametrize(
    "endpoint", ["/v1/messages", "/v1/moderations", "/v1/images/generations", "/v1/videos", ""]
)
async def test_other_endpoints_are_refused(endpoint: Any, engine: Any, weft: Any) -> None:
    async with engine(script=answer) as stub, weft(stub) as gateway, client_of(gateway) as client:
        file_id = await upload(client, lines(asked(CHAT, 0)))
        with pytest.raises(openai.BadRequestError) as raised:
            await client.batches.create(
                input_file_id=file_id, endpoint=endpoint, completion_window="24h"
            )
        assert raised.value.param == "endpoint"
        for supported in ENDPOINTS:
            assert supported in str(raised.value)
        assert [one.id async for one in client.batches.list()] == []
