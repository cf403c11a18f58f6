"""Batches with the unmodified client of OpenAI: files, batches, results, errors and limits."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from typing import Any

import openai
import pytest
from support.batches import CHAT, chat, client_of, content, ended, line, lines, run, upload

pytestmark = [pytest.mark.system, pytest.mark.anyio]


async def test_a_batch_runs_to_its_end(engine: Any, weft: Any) -> None:
    async with engine(script=chat) as stub, weft(stub) as gateway, client_of(gateway) as client:
        batch = await run(client, lines(*map(line, range(50))), metadata={"name": "first"})
        assert batch.errors is None
        assert batch.status == "completed"
        assert (batch.request_counts.total, batch.request_counts.completed) == (50, 50)
        assert batch.metadata == {"name": "first"}
        assert batch.model == "tiny"
        assert batch.error_file_id is None
        assert batch.created_at <= batch.in_progress_at <= batch.finalizing_at
        found = await content(client, batch.output_file_id)
        assert len(found) == 50
        one = found["row-7"]
        assert one["error"] is None
        assert one["response"]["status_code"] == 200
        assert one["response"]["body"]["choices"][0]["message"]["content"] == "re: question 7"
        assert len({each["id"] for each in found.values()}) == 50
        assert [each.id async for each in client.batches.list()] == [batch.id]


async def test_a_bad_file_fails_with_line_numbers(engine: Any, weft: Any) -> None:
    wrong: list[tuple[Any, str, str | None]] = [
        ("not an object", "invalid_json_line", None),
        (line(1) | {"custom_id": "row-0"}, "duplicate_custom_id", "custom_id"),
        ({k: v for k, v in line(2).items() if k != "custom_id"}, "missing_required_parameter",
         "custom_id"),
        (line(3) | {"method": "GET"}, "invalid_method", "method"),
        (line(4) | {"url": "/v1/embeddings"}, "invalid_url", "url"),
        (line(5, model="other"), "mismatched_model", "body.model"),
        (line(6) | {"body": [1]}, "invalid_type", "body"),
        (line(7) | {"custom_id": 7}, "invalid_type", "custom_id"),
    ]  # fmt: skip
    file = lines(line(0), *[one for one, _, _ in wrong]) + b"{not json}\n"
    async with engine(script=chat) as stub, weft(stub) as gateway, client_of(gateway) as client:
        batch = await run(client, file)
        assert batch.status == "failed"
        assert batch.failed_at
        assert batch.errors.object == "list"
        assert [(e.line, e.code, e.param) for e in batch.errors.data] == [
            *[(number, code, param) for number, (_, code, param) in enumerate(wrong, 2)],
            (10, "invalid_json_line", None),
        ]
        assert stub.requests == []
        unknown = await run(client, lines(line(0, model="large")))
        assert [e.code for e in unknown.errors.data] == ["model_not_found"]
        unknown = await run(client, lines(line(0, model="tinny")))
        assert unknown.errors.data[0].message.endswith("; did you mean tiny?")
        empty = await run(client, b"\n\n")
        assert [e.code for e in empty.errors.data] == ["empty_file"]


async def test_a_wrong_request_becomes_a_line_of_the_error_file(engine: Any, weft: Any) -> None:
    async def picky(wire: Any, request: Any) -> None:
        if "bad" in request.json:
            await wire.plain({"error": {"message": "bad", "code": 400}}, "400 Bad Request")
        else:
            await chat(wire, request)

    file = lines(line(0), line(1, bad=1), line(2, stream=True), line(3))
    async with engine(script=picky) as stub, weft(stub) as gateway, client_of(gateway) as client:
        batch = await run(client, file)
        assert batch.status == "completed"
        counts = batch.request_counts
        assert (counts.total, counts.completed, counts.failed) == (4, 2, 2)
        assert set(await content(client, batch.output_file_id)) == {"row-0", "row-3"}
        failed = await content(client, batch.error_file_id)
        assert failed["row-1"]["response"]["status_code"] == 400
        assert failed["row-1"]["response"]["body"]["error"]["message"] == "bad"
        body = failed["row-2"]["response"]["body"]
        assert body["error"]["code"] == "unsupported_in_batch"


async def test_identical_greedy_requests_are_sent_once(engine: Any, weft: Any) -> None:
    greedy = [line(number, "same", temperature=0) for number in range(5)]
    sampled = [line(number, "same", temperature=0.5) for number in range(5, 10)]
    default = [line(number, "same") for number in range(10, 15)]
    async with engine(script=chat) as stub, weft(stub) as gateway, client_of(gateway) as client:
        batch = await run(client, lines(*greedy, *sampled, *default))
        assert batch.request_counts.completed == 15
        assert len(stub.requests) == 11
        found = await content(client, batch.output_file_id)
        assert len({one["response"]["request_id"] for one in found.values()}) == 15
        assert len({json.dumps(one["response"]["body"]) for one in found.values()}) == 1


async def test_requests_with_a_common_beginning_are_neighbours(engine: Any, weft: Any) -> None:
    topics = ["a" * 600, "b" * 600, "c" * 600]
    mixed = [line(n, f"{topics[n % 3]} question {n}") for n in range(60)]
    async with (
        engine(script=chat) as stub,
        weft(stub, batch_calls=1) as gateway,
        client_of(gateway) as client,
    ):
        await run(client, lines(*mixed))
        seen = [one.json["messages"][0]["content"][0] for one in stub.requests]
    assert sum(a != b for a, b in pairwise(seen)) == 2


async def test_calls_of_a_batch_are_threads_of_one_program(
    engine: Any, weft: Any, until: Any
) -> None:
    gate = asyncio.Event()

    async def wait(wire: Any, request: Any) -> None:
        await gate.wait()
        await chat(wire, request)

    async with (
        engine(script=wait) as stub,
        weft(stub, batch_calls=4) as gateway,
        client_of(gateway) as client,
    ):
        file_id = await upload(client, lines(*map(line, range(20))))
        batch = await client.batches.create(
            input_file_id=file_id, endpoint=CHAT, completion_window="24h"
        )
        await until(lambda: len(stub.requests) >= 4)
        key = {"authorization": "Bearer sk-a"}
        (session,) = (await gateway.client.get("/v1/sessions", headers=key)).json()["data"]
        assert session["id"] == batch.id
        assert len({thread["thread"] for thread in session["threads"]}) == 4
        xargs = stub.requests[0].json["vllm_xargs"]
        assert xargs["weft_service"] == 20.0
        assert len(stub.requests) == 4
        gate.set()
        assert (await ended(client, batch.id)).status == "completed"


async def test_a_batch_can_be_cancelled(engine: Any, weft: Any, until: Any) -> None:
    gate = asyncio.Event()

    async def wait(wire: Any, request: Any) -> None:
        if len(stub.requests) > 6:
            await gate.wait()
        await chat(wire, request)

    async with (
        engine(script=wait) as stub,
        weft(stub, batch_calls=2) as gateway,
        client_of(gateway) as client,
    ):
        file_id = await upload(client, lines(*map(line, range(20))))
        batch = await client.batches.create(
            input_file_id=file_id, endpoint=CHAT, completion_window="24h"
        )
        await until(lambda: len(stub.requests) >= 8)
        assert (await client.batches.cancel(batch.id)).status == "cancelling"
        assert (await client.batches.cancel(batch.id)).status == "cancelling"
        gate.set()
        batch = await ended(client, batch.id)
        assert batch.status == "cancelled"
        assert batch.cancelling_at <= batch.cancelled_at
        done = await content(client, batch.output_file_id)
        unsent = await content(client, batch.error_file_id)
        assert (len(done), len(unsent)) == (8, 12)
        assert done.keys().isdisjoint(unsent)
        assert {one["error"]["code"] for one in unsent.values()} == {"batch_cancelled"}
        assert (await client.batches.cancel(batch.id)).status == "cancelled"


async def test_requests_expire_with_the_window(engine: Any, weft: Any) -> None:
    async def hang(wire: Any, request: Any) -> None:
        if len(stub.requests) > 3:
            await wire.closed()
        else:
            await chat(wire, request)

    async with (
        engine(script=hang) as stub,
        weft(stub, batch_calls=2) as gateway,
        client_of(gateway) as client,
    ):
        batch = await run(client, lines(*map(line, range(10))), completion_window="2s")
        assert batch.status == "expired"
        assert batch.expired_at >= batch.expires_at
        assert len(await content(client, batch.output_file_id)) == 3
        unsent = await content(client, batch.error_file_id)
        assert len(unsent) == 7
        assert {one["error"]["code"] for one in unsent.values()} == {"batch_expired"}


async def test_failures_of_replicas_are_repeated(engine: Any, weft: Any) -> None:
    failed: set[str] = set()

    async def flaky(wire: Any, request: Any) -> None:
        said = request.json["messages"][0]["content"]
        if said not in failed:
            failed.add(said)
            await wire.plain({"error": {"message": "busy"}}, "503 Service Unavailable")
        else:
            await chat(wire, request)

    async with engine(script=flaky) as stub, weft(stub) as gateway, client_of(gateway) as client:
        batch = await run(client, lines(*map(line, range(3))))
        assert batch.request_counts.completed == 3
        assert len(stub.requests) == 6


async def test_files(engine: Any, weft: Any) -> None:
    async with engine(script=chat) as stub, weft(stub) as gateway, client_of(gateway) as client:
        ids = [await upload(client, lines(line(number))) for number in range(3)]
        other = await upload(client, b"text", "user_data")
        listed = [file async for file in client.files.list()]
        assert [file.id for file in listed] == [other, *reversed(ids)]
        assert [f.id async for f in client.files.list(limit=2, order="asc")] == [*ids, other]
        assert [f.id async for f in client.files.list(purpose="user_data")] == [other]
        file = await client.files.retrieve(ids[0])
        assert (file.filename, file.purpose, file.status) == ("in.jsonl", "batch", "processed")
        data = await client.files.content(ids[0])
        assert data.content == lines(line(0))
        assert file.bytes == len(data.content)
        assert (await client.files.delete(ids[0])).deleted
        with pytest.raises(openai.NotFoundError, match="belong to the gateway that created them"):
            await client.files.retrieve(ids[0])
        with pytest.raises(openai.NotFoundError):
            await client.files.content(ids[0])
        short = await client.files.create(
            file=("a", b"x"),
            purpose="batch",
            expires_after={"anchor": "created_at", "seconds": 3600},
        )
        assert short.expires_at == short.created_at + 3600
        gateway.parts.batches.delete_old(short.expires_at)
        with pytest.raises(openai.NotFoundError):
            await client.files.retrieve(short.id)
        for wrong in ("answers", ""):
            with pytest.raises(openai.BadRequestError, match="purpose"):
                await upload(client, b"x", wrong)


async def test_the_input_of_a_running_batch_is_kept(engine: Any, weft: Any) -> None:
    gate = asyncio.Event()

    async def wait(wire: Any, request: Any) -> None:
        await gate.wait()
        await chat(wire, request)

    async with engine(script=wait) as stub, weft(stub) as gateway, client_of(gateway) as client:
        file_id = await upload(client, lines(line(0)))
        batch = await client.batches.create(
            input_file_id=file_id, endpoint=CHAT, completion_window="24h"
        )
        with pytest.raises(openai.ConflictError, match=batch.id):
            await client.files.delete(file_id)
        gate.set()
        await ended(client, batch.id)
        assert (await client.files.delete(file_id)).deleted


async def test_wrong_requests_for_batches_are_refused(engine: Any, weft: Any) -> None:
    async with (
        engine(script=chat) as stub,
        weft(stub, batches_per_tenant=1) as gateway,
        client_of(gateway) as client,
    ):
        data = await upload(client, lines(line(0)), "user_data")
        good = await upload(client, lines(line(0)))
        for options, match in (
            ({"input_file_id": "file-1"}, "No file"),
            ({"input_file_id": data}, "purpose"),
            ({"endpoint": "/v1/audio"}, "endpoint"),
            ({"completion_window": "24"}, "completion_window"),
            ({"completion_window": "8d"}, "completion_window"),
            ({"metadata": {"a": "b" * 513}}, "metadata"),
        ):
            with pytest.raises(openai.BadRequestError, match=match):
                await client.batches.create(
                    **{"input_file_id": good, "endpoint": CHAT, "completion_window": "24h"}
                    | options
                )
        gate = asyncio.Event()

        async def wait(wire: Any, request: Any) -> None:
            await gate.wait()
            await chat(wire, request)

        stub.script = wait
        options: Any = {"input_file_id": good, "endpoint": CHAT, "completion_window": "24h"}
        batch = await client.batches.create(**options)
        with pytest.raises(openai.RateLimitError, match="unfinished"):
            await client.batches.create(**options)
        gate.set()
        await ended(client, batch.id)


async def test_results_are_deleted_when_the_client_says(engine: Any, weft: Any) -> None:
    async with (
        engine(script=chat) as stub,
        weft(stub) as gateway,
        client_of(gateway) as client,
    ):
        after: Any = {"anchor": "created_at", "seconds": 3600}
        wrong = line(1) | {"body": {"model": "tiny", "messages": [], "stream": True}}
        batch = await run(client, lines(line(0), wrong), output_expires_after=after)
        for file_id in (batch.output_file_id, batch.error_file_id):
            file = await client.files.retrieve(file_id)
            assert file.expires_at == file.created_at + 3600
        for seconds in (3599, 2_592_001):
            with pytest.raises(openai.BadRequestError, match="output_expires_after"):
                await run(client, lines(line(0)), output_expires_after=after | {"seconds": seconds})
