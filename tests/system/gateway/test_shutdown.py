"""SIGTERM with connected listeners and running prefills: the gateway stops and leaves no open call
in the shared table.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.redis_server import RedisServer
from support.stack import free_port
from support.waiting import DEADLINE_S
from weft_bench.stack.gateway import command
from weft_gateway.programs.handles import HandleStore
from weft_gateway.programs.redis import RedisTable

pytestmark = [pytest.mark.system, pytest.mark.anyio]

# The gateway may wait this long for calls in flight, but not for listeners or prefills.
DRAIN_S = 300


async def is_healthy(client: httpx.AsyncClient) -> bool:
    try:
        return (await client.get("/health")).status_code == 200
    except httpx.TransportError:
        return False


async def test_shutdown_does_not_wait_for_listeners_and_prefills(
    tmp_path: Path, engine: Any, until: Any
) -> None:
    stopped = 0
    handles = []

    async def script(wire: Any, request: Any) -> None:
        nonlocal stopped
        await wire.closed()
        stopped += 1

    redis = RedisServer(tmp_path)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    try:
        async with engine(script=script, canned={"/weft/kv": {}}) as stub:
            process = await asyncio.create_subprocess_exec(
                *command({"redis_timeout_s": 20}, port=port),
                env={
                    **os.environ,
                    "WEFT_REPLICAS": stub.url,
                    "WEFT_REDIS_URL": redis.url,
                    "WEFT_DRAIN_S": str(DRAIN_S),
                },
                stderr=asyncio.subprocess.PIPE,
            )
            try:
                async with (
                    asyncio.timeout(DEADLINE_S),
                    httpx.AsyncClient(base_url=url, timeout=DEADLINE_S, trust_env=False) as client,
                ):
                    while not await is_healthy(client):  # noqa: ASYNC110
                        await asyncio.sleep(0.05)
                    messages = [{"role": "user", "content": "How far?"}]
                    for number in range(3):
                        body = {"messages": messages, "session_id": f"run-{number}"}
                        got = await client.post("/v1/hints/prefill", json=body)
                        assert got.status_code == 201
                        handles.append(got.json()["id"])
                    await until(lambda: len(stub.requests) == 3)
                    async with client.stream("GET", "/v1/sessions/run-0/events") as events:
                        lines = events.aiter_lines()
                        assert await anext(lines) == ": listening"
                        process.send_signal(signal.SIGTERM)
                        # The event stream ends cleanly.
                        assert [line async for line in lines if line] == []
                    _, stderr = await process.communicate()
                assert process.returncode == 0
                assert b"Traceback" not in stderr
                assert stderr.splitlines()[-1].endswith(b"stopped")
                await until(lambda: stopped == 3)
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
        table = RedisTable(redis.url, timeout_s=20)
        try:
            assert await table.check() == []
            programs = await table.programs("public", 9)
            assert [(p.calls, p.calls_closed, p.threads) for p in programs] == [(1, 1, ())] * 3
            # The handles are marked as failed, so other gateways report this to their clients.
            store = HandleStore(table)
            found = [await store.find("public", handle, time.time()) for handle in handles]
            assert [fields and fields["state"] for fields in found] == ["failed"] * 3
        finally:
            await table.aclose()
    finally:
        redis.kill()
