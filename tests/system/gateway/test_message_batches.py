"""Batches with the unmodified client of Anthropic."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import anthropic
import pytest
from support.waiting import DEADLINE_S

pytestmark = [pytest.mark.system, pytest.mark.anyio]


def asked(number: int, **params: Any) -> Any:
    """Return one request of a batch."""
    messages = [{"role": "user", "content": f"question {number}"}]
    params = {"model": "tiny", "max_tokens": 8, "messages": messages} | params
    return {"custom_id": f"row-{number}", "params": params}


async def message(wire: Any, request: Any) -> None:
    """Answer with the last message, or with an error."""
    body = request.json
    if "bad" in body:
        await wire.plain({"error": {"message": "bad", "code": 400}}, "400 Bad Request")
        return
    said = body["messages"][-1]["content"]
    await wire.plain(
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": body["model"],
            "content": [{"type": "text", "text": f"re: {said}"}],
            "stop_reason": "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": 3, "output_tokens": 3},
        }
    )


def client_of(gateway: Any, key: str = "sk-a") -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(base_url=gateway.url, api_key=key, max_retries=0)


async def ended(client: anthropic.AsyncAnthropic, batch_id: str) -> Any:
    async with asyncio.timeout(DEADLINE_S):
        while True:
            batch = await client.messages.batches.retrieve(batch_id)
            if batch.processing_status == "ended":
                return batch
            await asyncio.sleep(0.02)


async def test_a_batch_of_messages_runs_to_its_end(engine: Any, weft: Any) -> None:
    requests = [*map(asked, range(20)), asked(20, bad=1), asked(21, stream=True)]
    async with (
        engine(script=message) as stub,
        weft(stub) as gateway,
        client_of(gateway) as client,
    ):
        batch = await client.messages.batches.create(requests=requests)
        assert batch.type == "message_batch"
        assert batch.processing_status == "in_progress"
        assert batch.results_url is None
        # Clients wait while requests are processed.
        assert batch.request_counts.processing == 22
        batch = await ended(client, batch.id)
        assert batch.results_url == f"{gateway.url}/v1/messages/batches/{batch.id}/results"
        listed = await client.messages.batches.list()
        assert listed.data[0].results_url == batch.results_url
        # A proxy says how its clients reach it.
        hop = {"x-forwarded-proto": "https", "x-forwarded-prefix": "/llm", "host": "weft.test:8443"}
        seen = await client.messages.batches.retrieve(batch.id, extra_headers=hop)
        path = f"/v1/messages/batches/{batch.id}/results"
        assert seen.results_url == f"https://weft.test:8443/llm{path}"
        hops = {"x-forwarded-proto": "https, http", "x-forwarded-host": "weft.test, inner"}
        seen = await client.messages.batches.retrieve(batch.id, extra_headers=hops)
        assert seen.results_url == f"https://weft.test{path}"
        for host in ("a,b", "a/../b", "a" * 256):
            odd = await client.messages.batches.retrieve(batch.id, extra_headers={"host": host})
            assert odd.results_url == path
        counts = batch.request_counts
        assert (counts.succeeded, counts.errored, counts.processing) == (20, 2, 0)
        assert batch.created_at <= batch.ended_at <= batch.expires_at
        found = {
            one.custom_id: one.result
            async for one in await client.messages.batches.results(batch.id)
        }
        assert len(found) == 22
        assert found["row-3"].type == "succeeded"
        assert found["row-3"].message.content[0].text == "re: question 3"
        assert found["row-20"].type == found["row-21"].type == "errored"
        assert found["row-20"].error.error.message == "bad"
        assert found["row-20"].error.error.type == "invalid_request_error"
        # Each error names the request, whose receipt says more.
        for name in ("row-20", "row-21"):
            receipt = f"/v1/receipts/{found[name].error.request_id}"
            headers = {"x-api-key": "sk-a"}
            assert (await gateway.client.get(receipt, headers=headers)).status_code == 200
        assert (await client.messages.batches.delete(batch.id)).type == "message_batch_deleted"
        with pytest.raises(anthropic.NotFoundError) as error:
            await client.messages.batches.retrieve(batch.id)
        assert error.value.body["error"]["type"] == "not_found_error"
        assert list((gateway.parts.batches.store.folder / "files").iterdir()) == []


async def test_batches_of_messages_are_listed_and_cancelled(engine: Any, weft: Any) -> None:
    gate = asyncio.Event()

    async def wait(wire: Any, request: Any) -> None:
        await gate.wait()
        await message(wire, request)

    async with (
        engine(script=wait) as stub,
        weft(stub, batch_calls=1) as gateway,
        client_of(gateway) as client,
    ):
        batches = [
            await client.messages.batches.create(requests=[asked(0), asked(1)]) for _ in range(3)
        ]
        ids = [batch.id for batch in reversed(batches)]
        assert [one.id async for one in client.messages.batches.list(limit=2)] == ids
        first = await client.messages.batches.list(limit=2)
        assert (first.has_more, first.last_id) == (True, ids[1])
        before = await client.messages.batches.list(limit=1, before_id=ids[2])
        assert [one.id for one in before.data] == [ids[1]]
        assert before.has_more
        with pytest.raises(anthropic.BadRequestError, match="in progress"):
            await client.messages.batches.delete(ids[0])
        with pytest.raises(anthropic.AnthropicError, match="No `results_url`"):
            await client.messages.batches.results(ids[0])
        while not stub.requests:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        cancelled = [await client.messages.batches.cancel(batch.id) for batch in batches]
        assert {one.processing_status for one in cancelled} <= {"canceling", "ended"}
        assert all(one.cancel_initiated_at for one in cancelled)
        gate.set()
        for batch in batches:
            counts = (await ended(client, batch.id)).request_counts
            assert counts.succeeded + counts.canceled == 2
            results = [one async for one in await client.messages.batches.results(batch.id)]
            assert sorted(one.custom_id for one in results) == ["row-0", "row-1"]


async def test_requests_of_a_model_use_the_windows_of_its_replicas(engine: Any, weft: Any) -> None:
    most = {"a": 0, "b": 0}
    running = {"a": 0, "b": 0}

    async def slow(wire: Any, request: Any) -> None:
        model = request.json["model"]
        running[model] += 1
        most[model] = max(most[model], running[model])
        await asyncio.sleep(0.02)
        running[model] -= 1
        await message(wire, request)

    requests = [asked(number, model="b" if number == 7 else "a") for number in range(16)]
    async with (
        engine(script=slow, models=("a",)) as first,
        engine(script=slow, models=("b",)) as second,
        weft(first, second, batch_calls=2) as gateway,
        client_of(gateway) as client,
    ):
        batch = await client.messages.batches.create(requests=requests)
        assert (await ended(client, batch.id)).request_counts.succeeded == 16
    assert most == {"a": 2, "b": 1}


@pytest.mark.parametrize(
    ("body", "where"),
    [
        (b"", "requests"),
        (b"{", "JSON"),
        (b"[]", "object"),
        (b'{"requests": []}', "requests"),
        (b'{"requests": [1]}', "requests.0"),
        (b'{"requests": [{"custom_id": "a"}]}', "requests.0"),
        (b'{"requests": [{"custom_id": "a b", "params": {}}]}', "requests.0.custom_id"),
        (b'{"requests": [{"custom_id": "a", "params": [1]}]}', "requests.0"),
        (b'{"requests": [{"custom_id": "a", "params": {"model": 1}}]}', "requests.0"),
        (
            json.dumps({"requests": [asked(1), asked(2, model="tinny")]}).encode(),
            "requests.1.params.model: the model 'tinny' does not exist or is not served here; "
            "did you mean tiny?",
        ),
        (json.dumps({"requests": [asked(1), asked(1)]}).encode(), "requests.1.custom_id"),
        (b'{"requests": [{"custom_id": "\xff", "params": {}}]}', "requests.0"),
    ],
)
async def test_wrong_bodies_are_refused(engine: Any, weft: Any, body: bytes, where: str) -> None:
    async with engine(script=message) as stub, weft(stub) as gateway:
        answer = await gateway.client.post("/v1/messages/batches", content=body)
        assert answer.status_code == 400
        assert answer.json()["type"] == "error"
        assert where in answer.json()["error"]["message"]
        assert list((gateway.parts.batches.store.folder / "files").iterdir()) == []
