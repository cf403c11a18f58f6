"""A gateway is killed during a batch, and the next one finishes it."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from support.batches import CALLS, CHAT, chat, content, ended, line, lines, served, upload
from support.stack import free_port
from support.waiting import DEADLINE_S

pytestmark = [pytest.mark.system, pytest.mark.anyio]


async def test_a_killed_gateway_continues_its_batches(
    tmp_path: Path, engine: Any, until: Any
) -> None:
    sent: list[str] = []
    pause = 50

    async def slow(wire: Any, request: Any) -> None:
        sent.append(request.json["messages"][0]["content"])
        if len(sent) > pause:
            await asyncio.sleep(0.02)
        await chat(wire, request)

    port, folder = free_port(), tmp_path / "data"
    file = lines(*map(line, range(150)), line(150, "same", temperature=0),
                 line(151, "same", temperature=0))  # fmt: skip
    async with engine(script=slow) as stub:
        url = f"http://127.0.0.1:{port}"
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="sk-a") as client:
            async with served(port, stub.url, folder) as process:
                batch = await client.batches.create(
                    input_file_id=await upload(client, file),
                    endpoint=CHAT,
                    completion_window="24h",
                )
                await until(lambda: len(sent) > pause)
                process.kill()
                await process.wait()
            before = len(sent)
            # The write that the kill may have interrupted.
            torn = max((folder / "files").iterdir(), key=lambda path: path.stat().st_mtime)
            with torn.open("ab") as results:
                results.write(b'{"id":"batch_req_1","custom_id":"row-1')
            pause = 10_000
            async with served(port, stub.url, folder):
                batch = await ended(client, batch.id)
                assert batch.status == "completed"
                counts = batch.request_counts
                assert (counts.total, counts.completed, counts.failed) == (152, 152, 0)
                assert batch.usage.total_tokens == 152 * 5
                found = await content(client, batch.output_file_id)
                assert found.keys() == {f"row-{number}" for number in range(152)}
    assert before < 151
    # At most the calls in flight were computed twice.
    assert 151 <= len(sent) <= 151 + CALLS


async def test_the_counts_of_a_batch_do_not_go_back_after_a_restart(
    tmp_path: Path, engine: Any
) -> None:
    port, folder, gate = free_port(), tmp_path / "data", asyncio.Event()
    answers = 40

    async def answer(wire: Any, request: Any) -> None:
        if len(stub.requests) > answers:
            await gate.wait()
        with contextlib.suppress(ConnectionError):
            await chat(wire, request)

    async with engine(script=answer) as stub:
        url = f"http://127.0.0.1:{port}"
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="sk-a") as client:
            seen = []
            async with served(port, stub.url, folder):
                # Reading 5000 requests again takes a moment.
                name = await upload(client, lines(*map(line, range(5000))))
                batch = await client.batches.create(
                    input_file_id=name, endpoint=CHAT, completion_window="24h"
                )
                while (found := await client.batches.retrieve(batch.id)) and (  # noqa: ASYNC110
                    found.request_counts.completed < answers
                ):
                    await asyncio.sleep(0.02)
                seen.append((found.request_counts.completed, found.usage.total_tokens))
            async with served(port, stub.url, folder):
                for _ in range(40):
                    found = await client.batches.retrieve(batch.id)
                    seen.append((found.request_counts.completed, found.usage.total_tokens))
                    await asyncio.sleep(0.02)
            gate.set()
    assert seen == sorted(seen)


async def test_a_killed_gateway_continues_batches_of_messages(
    tmp_path: Path, engine: Any, until: Any
) -> None:
    gate = asyncio.Event()

    async def answer(wire: Any, request: Any) -> None:
        if len(stub.requests) > 5:
            await gate.wait()
        with contextlib.suppress(ConnectionError):
            await wire.plain({"id": "msg_1", "type": "message", "content": []})

    port, folder = free_port(), tmp_path / "data"
    params: Any = {"model": "tiny", "max_tokens": 1, "messages": []}
    requests: Any = [{"custom_id": f"row-{n}", "params": params} for n in range(20)]
    async with engine(script=answer) as stub:
        url = f"http://127.0.0.1:{port}"
        async with anthropic.AsyncAnthropic(base_url=url, api_key="sk-a") as client:
            batches = client.messages.batches
            async with served(port, stub.url, folder):
                batch = await batches.create(requests=requests)
                await until(lambda: len(stub.requests) > 5)
                await batches.cancel(batch.id)
            gate.set()
            async with served(port, stub.url, folder), asyncio.timeout(DEADLINE_S):
                while (await batches.retrieve(batch.id)).processing_status != "ended":  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
                results = [one async for one in await batches.results(batch.id)]
                counts = (await batches.retrieve(batch.id)).request_counts
    assert sorted(one.custom_id for one in results) == sorted(f"row-{n}" for n in range(20))
    kinds = [one.result.type for one in results]
    assert kinds.count("succeeded") == counts.succeeded > 0
    assert kinds.count("canceled") == counts.canceled > 0
