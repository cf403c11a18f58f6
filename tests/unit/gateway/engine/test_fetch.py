"""Requests to engines whose answers are too large, too slow or compressed."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator

import httpx
import pytest
from weft_gateway.engine.fetch import EngineClient, Fetched
from weft_gateway.engine.pool import Timeouts
from weft_gateway.engine.registry import Registry

pytestmark = pytest.mark.anyio


class Endless(httpx.AsyncByteStream):
    """A body that never ends; with a pause between its parts."""

    def __init__(self, pause_s: float) -> None:
        self.pause_s, self.sent = pause_s, 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            await asyncio.sleep(self.pause_s)
            self.sent += 1
            yield b"x" * 1000


async def ask(answer: httpx.Response, within_s: float = 20, max_bytes: int = 10_000) -> Fetched:
    async with httpx.AsyncClient(transport=httpx.MockTransport(lambda _: answer)) as client:
        replica = Registry({"r0": "http://engine"}, Timeouts(1, 1, 1))["r0"]
        return await EngineClient(client).fetch(replica, "/x", within_s, max_bytes)


async def test_answer_is_returned() -> None:
    got = await ask(httpx.Response(503, json={"a": 1}))
    assert (got.status, got.json()) == (503, {"a": 1})


async def test_endless_answer_is_refused() -> None:
    body = Endless(0)
    with pytest.raises(httpx.DecodingError):
        await ask(httpx.Response(200, stream=body))
    assert body.sent == 11


async def test_slow_endless_answer_times_out() -> None:
    with pytest.raises(httpx.TimeoutException):
        await ask(httpx.Response(200, stream=Endless(0.01)), within_s=0.1, max_bytes=10**9)


async def test_compressed_answer_is_refused() -> None:
    packed = gzip.compress(b"0" * 1_000_000)
    answer = httpx.Response(
        200, headers={"content-encoding": "gzip"}, stream=httpx.ByteStream(packed)
    )
    with pytest.raises(httpx.DecodingError):
        await ask(answer, max_bytes=10**9)


@pytest.mark.parametrize("body", [b"", b"{", b"NaN", b"[" * 5000, b"\xff\xfe", b'"\\ud800"'])
async def test_invalid_json_is_a_value_error(body: bytes) -> None:
    got = await ask(httpx.Response(200, content=body))
    with pytest.raises(ValueError):  # noqa: PT011
        got.json()
