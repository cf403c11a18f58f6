"""Limits on the number of connections, pipelining and protocol upgrades."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from support.raw_client import BODY, CALL, WHOLE, raw
from support.waiting import DEADLINE_S

pytestmark = [pytest.mark.system, pytest.mark.anyio]


async def received(stub: Any, count: int) -> None:
    """Wait until an engine has received `count` requests."""
    async with asyncio.timeout(DEADLINE_S):
        while len(stub.requests) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


# Connections


async def test_idle_connections_do_not_block_new_ones(engine: Any, weft: Any) -> None:
    async with (
        engine() as stub,
        weft(stub, max_connections=4) as gateway,
        contextlib.AsyncExitStack() as stack,
    ):
        idle = [await stack.enter_async_context(raw(gateway)) for _ in range(8)]
        async with raw(gateway) as client:
            await client.send(WHOLE)
            assert (await client.answer())[0] == 200
        # The gateway closes the oldest idle connections for the new ones.
        assert await idle[0].ended() == b""


async def test_a_connection_over_the_limit_is_503_when_all_are_busy(engine: Any, weft: Any) -> None:
    go = asyncio.Event()

    async def script(wire: Any, request: Any) -> None:
        await go.wait()
        await wire.plain({"id": "resp_1"})

    async with (
        engine(script=script) as stub,
        weft(stub, max_connections=2) as gateway,
        raw(gateway) as one,
        raw(gateway) as two,
    ):
        for client in (one, two):
            await client.send(WHOLE)
        await received(stub, 2)
        async with raw(gateway) as three:
            headers = await three.refused(503, "too_many_connections")
            assert headers["retry-after"] == "2"
        go.set()
        for client in (one, two):
            assert (await client.answer())[0] == 200


async def test_connections_are_limited_per_key(engine: Any, weft: Any) -> None:
    go = asyncio.Event()

    async def script(wire: Any, request: Any) -> None:
        await go.wait()
        await wire.plain({"id": "resp_1"})

    def call(key: bytes) -> bytes:
        return WHOLE.replace(b"host: x\r\n", b"host: x\r\nauthorization: Bearer %b\r\n" % key)

    async with (
        engine(script=script) as stub,
        weft(stub, max_connections_per_key=1) as gateway,
        raw(gateway) as one,
        raw(gateway) as two,
        raw(gateway) as other,
    ):
        await one.send(call(b"a"))
        await received(stub, 1)
        await two.send(call(b"a"))
        headers = await two.refused(429, "too_many_connections_of_key")
        assert headers["retry-after"] == "2"
        await other.send(call(b"b"))
        go.set()
        assert (await one.answer())[0] == (await other.answer())[0] == 200
        # The connection of an ended call no longer counts.
        await one.send(call(b"a"))
        assert (await one.answer())[0] == 200


async def test_probes_are_answered_when_keyless_clients_reach_their_limit(
    engine: Any, weft: Any
) -> None:
    go = asyncio.Event()

    async def script(wire: Any, request: Any) -> None:
        await go.wait()
        await wire.plain({"id": "resp_1"})

    async with (
        engine(script=script) as stub,
        weft(stub, max_connections_per_key=1) as gateway,
        raw(gateway) as one,
    ):
        await one.send(WHOLE)
        await received(stub, 1)
        for path in ("/health", "/ready", "/metrics"):
            assert (await gateway.client.get(path)).status_code == 200
        go.set()
        assert (await one.answer())[0] == 200


async def test_pipelined_requests_are_answered_in_order_and_bounded(engine: Any, weft: Any) -> None:
    async with engine() as stub, weft(stub) as gateway:
        async with raw(gateway) as client:
            await client.send(WHOLE * 8)
            assert [(await client.answer())[0] for _ in range(8)] == [200] * 8
        before = len(stub.requests)
        async with raw(gateway) as client:
            await client.send(WHOLE * 1000)
            await client.ended()
        assert len(stub.requests) - before <= 33


# Upgrades


@pytest.mark.parametrize("cut", [0, 20, -5], ids=["whole", "in the head", "in the body"])
async def test_an_upgrade_to_http2_is_ignored_and_the_body_is_served(
    cut: int, engine: Any, weft: Any
) -> None:
    upgrade = b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\n"
    request = CALL + upgrade + b"content-length: %d\r\n\r\n" % len(BODY) + BODY
    async with engine() as stub, weft(stub) as gateway, raw(gateway) as client:
        for _ in range(2):  # The connection stays open.
            if cut:
                await client.send(request[:cut])
                await asyncio.sleep(0.05)
            await client.send(request[cut:] if cut else request)
            status, _, body = await client.answer()
            assert (status, body["model"]) == (200, "tiny")
        assert [got.raw.endswith(BODY[1:]) for got in stub.requests] == [True, True]


async def test_an_upgrade_of_http_1_0_gets_an_answer_of_http_1_0(engine: Any, weft: Any) -> None:
    async def script(wire: Any, request: Any) -> None:
        await wire.stream(b'data: {"id": "1", "choices": []}\n\n', b"data: [DONE]\n\n")

    body = BODY.replace(b"}", b', "stream": true}')
    head = CALL.replace(b"/1.1", b"/1.0") + b"connection: upgrade\r\nupgrade: h2c\r\n"
    async with engine(script=script) as stub, weft(stub) as gateway, raw(gateway) as client:
        await client.send(head + b"content-length: %d\r\n\r\n" % len(body) + body)
        got, _, events = (await client.ended()).partition(b"\r\n\r\n")
        assert b" 200 " in got.partition(b"\r\n")[0]
        assert b"transfer-encoding" not in got.lower()
        assert events.startswith(b"data: ")
        assert events.endswith(b"data: [DONE]\n\n")


async def test_connect_is_an_error_in_json(engine: Any, weft: Any) -> None:
    async with engine() as stub, weft(stub) as gateway, raw(gateway) as client:
        await client.send(b"CONNECT a:443 HTTP/1.1\r\nhost: a:443\r\n\r\n")
        await client.refused(405, "method_not_allowed")
