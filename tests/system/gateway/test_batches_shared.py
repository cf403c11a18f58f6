"""Several gateways with one folder for files and batches, or with a folder each."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import openai
import pytest
from support.batches import (
    CALLS,
    CHAT,
    chat,
    client_of,
    content,
    ended,
    line,
    lines,
    run,
    served,
    upload,
)
from support.redis_server import RedisServer
from support.stack import free_port

pytestmark = [pytest.mark.system, pytest.mark.anyio]


async def test_another_gateway_continues_the_batches_of_a_killed_one(
    redis: RedisServer, tmp_path: Path, engine: Any, until: Any
) -> None:
    sent: list[str] = []
    gate, pause = asyncio.Event(), 40

    async def slow(wire: Any, request: Any) -> None:
        sent.append(request.json["messages"][0]["content"])
        if len(sent) > pause:
            await gate.wait()
        with contextlib.suppress(ConnectionError):
            await chat(wire, request)

    ports, folder = (free_port(), free_port()), tmp_path / "data"
    shared = {"WEFT_REDIS_URL": redis.url, "constants": {"call_lease_s": 2}}
    first, second = (
        openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="sk-a") for port in ports
    )
    async with (
        engine(script=slow) as stub,
        first,
        second,
        served(ports[0], stub.url, folder, **shared) as owner,
    ):
        file_id = await upload(first, lines(*map(line, range(100))))
        async with served(ports[1], stub.url, folder, **shared):
            # The second gateway creates a batch, and the owner of the folder runs it.
            batch = await second.batches.create(
                input_file_id=file_id, endpoint=CHAT, completion_window="24h"
            )
            await until(lambda: len(sent) >= pause + CALLS)
            for client in (first, second):
                assert [one.id async for one in client.batches.list()] == [batch.id]
                assert [one.id async for one in client.files.list()] == [file_id]
                with pytest.raises(openai.ConflictError, match=batch.id):
                    await client.files.delete(file_id)
            before = len(sent)
            owner.kill()
            await owner.wait()
            gate.set()
            batch = await ended(second, batch.id)
            assert batch.status == "completed"
            assert batch.request_counts.completed == 100
            found = await content(second, batch.output_file_id)
            assert found.keys() == {f"row-{number}" for number in range(100)}
            assert before == pause + CALLS
            # At most the calls in flight were computed twice.
            assert 100 <= len(sent) <= 100 + CALLS
            # A gateway that starts later serves the same files, and runs nothing.
            async with served(ports[0], stub.url, folder, **shared):
                assert await content(first, batch.output_file_id) == found


async def test_every_gateway_of_a_folder_cancels(engine: Any, weft: Any, until: Any) -> None:
    gate = asyncio.Event()

    async def wait(wire: Any, request: Any) -> None:
        await gate.wait()
        await chat(wire, request)

    async with (
        engine(script=wait) as stub,
        weft(stub, batch_calls=2) as owner,
        weft(stub, batch_calls=2) as other,
        client_of(owner) as first,
        client_of(other) as second,
    ):
        file_id = await upload(first, lines(*map(line, range(20))))
        options: Any = {"endpoint": CHAT, "completion_window": "24h"}
        batch = await first.batches.create(input_file_id=file_id, **options)
        await until(lambda: len(stub.requests) == 2)
        assert (await second.batches.cancel(batch.id)).status == "cancelling"
        assert (await first.batches.retrieve(batch.id)).status in ("in_progress", "cancelling")
        await until(lambda: owner.parts.batches.runner.active[batch.id].stop)
        gate.set()
        for client in (first, second):
            batch = await ended(client, batch.id)
            assert batch.status == "cancelled"
            assert len(await content(client, batch.output_file_id)) == 2
            assert len(await content(client, batch.error_file_id)) == 18
        assert len(stub.requests) == 2
        # A batch is cancelled before its owner has begun it, too.
        parts = other.parts.batches
        assert not parts.store.owner
        created = await second.batches.create(input_file_id=file_id, **options)
        assert (await second.batches.cancel(created.id)).status == "cancelling"
        assert (await ended(second, created.id)).status == "cancelled"
        assert (await second.files.delete(file_id)).deleted
        assert len(stub.requests) <= 4


async def test_a_gateway_that_stops_hands_its_batches_over(engine: Any, weft: Any) -> None:
    async with engine(script=chat) as stub:
        async with weft(stub) as owner, client_of(owner) as first:
            file_id = await upload(first, lines(*map(line, range(20))))
            assert owner.parts.batches.store.owner
            async with weft(stub) as other, client_of(other) as second:
                assert [one.id async for one in second.files.list()] == [file_id]
                assert not other.parts.batches.store.owner
        async with weft(stub) as other, client_of(other) as second:
            assert (await run(second, lines(line(0)))).status == "completed"


async def test_gateways_with_separate_folders_do_not_share_batches(
    engine: Any, weft: Any, tmp_path: Path
) -> None:
    async with (
        engine(script=chat) as stub,
        weft(stub) as one,
        weft(stub, data_dir=str(tmp_path / "other")) as other,
        client_of(one) as first,
        client_of(other) as second,
    ):
        batch = await run(first, lines(line(0)))
        assert batch.status == "completed"
        assert [one.id async for one in second.batches.list()] == []
        with pytest.raises(openai.NotFoundError, match="those with the same folder"):
            await second.batches.retrieve(batch.id)
        with pytest.raises(openai.BadRequestError, match="those with the same folder"):
            await second.batches.create(
                input_file_id=batch.input_file_id, endpoint=CHAT, completion_window="24h"
            )


async def test_batches_leave_room_for_clients_of_other_gateways(
    redis: RedisServer, engine: Any, weft: Any, until: Any
) -> None:
    held, gate = asyncio.Event(), asyncio.Event()
    running, most = 0, 0

    async def script(wire: Any, request: Any) -> None:
        nonlocal running, most
        if not request.json["messages"]:
            await held.wait()
            await wire.plain({})
            return
        running += 1
        await gate.wait()
        most = max(most, running)
        await asyncio.sleep(0.02)
        running -= 1
        await chat(wire, request)

    async with (
        engine(script=script) as stub,
        weft(stub, redis_url=redis.url, batch_calls=8) as owner,
        weft(stub, redis_url=redis.url) as other,
        client_of(owner) as client,
    ):
        call = asyncio.create_task(other.call())
        await until(lambda: len(stub.requests) == 1)
        file_id = await upload(client, lines(*map(line, range(40))))
        batch = await client.batches.create(
            input_file_id=file_id, endpoint=CHAT, completion_window="24h"
        )
        await until(lambda: running >= 3)
        held.set()
        assert (await call).status_code == 200
        gate.set()
        assert (await ended(client, batch.id)).status == "completed"
        # Half of the slots, because the client may call again soon.
        assert most <= 4
        # The other gateway reads the counts with its calls.
        assert (await other.call()).status_code == 200
