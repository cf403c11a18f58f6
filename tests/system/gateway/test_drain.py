"""Shutdown of a gateway process with calls in flight, as its clients see it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from support.raw_client import CALL as CALL_HEAD
from support.raw_client import raw
from support.stack import free_port
from support.waiting import DEADLINE_S

pytestmark = [pytest.mark.system, pytest.mark.anyio]

CALL = {"model": "tiny", "messages": []}
EVENT = b'data: {"id":"c","object":"chat.completion.chunk","choices":[]}\n\n'


class Served:
    """A `weft serve` process and an HTTP client of it."""

    def __init__(self, process: Any, client: httpx.AsyncClient) -> None:
        self.process = process
        self.client = client
        self.url = str(client.base_url)
        self.stderr = b""

    async def stopped(self) -> int:
        """Wait until the process ends and return its exit status."""
        _, self.stderr = await asyncio.wait_for(self.process.communicate(), DEADLINE_S)
        return int(self.process.returncode)


@contextlib.asynccontextmanager
async def serving(url: str, **variables: str) -> AsyncIterator[Served]:
    """Run a gateway process in front of one engine."""
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "weft_gateway.cli", "serve", "--port", str(port)),
        env={**os.environ, "WEFT_REPLICAS": url, **variables},
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", timeout=DEADLINE_S, trust_env=False
        ) as client:
            async with asyncio.timeout(DEADLINE_S):
                while True:
                    with contextlib.suppress(httpx.TransportError):
                        if (await client.get("/health")).status_code == 200:
                            break
                    await asyncio.sleep(0.05)
            yield Served(process, client)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def waiting(wire: Any, request: Any) -> None:
    """Begin streams, then send nothing more."""
    if request.json.get("stream"):
        await wire.stream(EVENT, end=False)
    await wire.closed()


@pytest.mark.parametrize(
    ("path", "shape"), [("/v1/chat/completions", "openai"), ("/v1/messages", "anthropic")]
)
async def test_a_call_longer_than_the_drain_gets_an_error_in_the_format_of_its_api(
    path: str, shape: str, engine: Any, until: Any
) -> None:
    async with engine(script=waiting) as stub, serving(stub.url, WEFT_DRAIN_S="0.5") as gateway:
        plain = asyncio.create_task(gateway.client.post(path, json=CALL))
        lines = []
        async with gateway.client.stream("POST", path, json={**CALL, "stream": True}) as stream:
            await until(lambda: len(stub.requests) == 2)
            gateway.process.send_signal(signal.SIGTERM)
            stopped = asyncio.create_task(gateway.stopped())
            # The stream ends with a complete final chunk.
            lines = [line async for line in stream.aiter_lines() if line]
        last = json.loads(lines[-1].removeprefix("data: "))
        got = await plain
        for error in (last, got.json()):
            assert "shutting down" in error["error"]["message"]
            assert error.get("type") == ("error" if shape == "anthropic" else None)
        assert ("event: error" in lines) == (shape == "anthropic")
        assert got.status_code == 503
        assert got.headers["content-type"] == "application/json"
        assert await stopped == 0
        assert b"2 calls took longer than 0.5 s and are aborted" in gateway.stderr
        assert b"Traceback" not in gateway.stderr


async def test_an_unfinished_body_gets_an_error_at_the_end_of_the_drain(engine: Any) -> None:
    async with (
        engine() as stub,
        serving(stub.url, WEFT_DRAIN_S="0.5") as gateway,
        raw(gateway) as client,
    ):
        await client.send(CALL_HEAD + b"content-length: 100\r\n\r\n{")
        # The gateway has read the body: it handles input in the order of arrival.
        assert (await gateway.client.get("/health")).status_code == 200
        gateway.process.send_signal(signal.SIGTERM)
        await client.refused(503, "shutting_down")
        assert await gateway.stopped() == 0
