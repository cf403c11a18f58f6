"""Clients that disconnect during a call."""

import asyncio
import math
from typing import Any

import pytest
from support.waiting import DEADLINE_S
from weft_engine.wire import CallReport

pytestmark = [pytest.mark.system, pytest.mark.anyio]


async def disconnect(gateway: Any, arrived: asyncio.Event, stream: bool) -> None:
    """Start a call and disconnect once the engine has it. A stream has begun by then."""
    body = {"model": "tiny", "stream": stream}
    headers = {"x-weft-program": "run"}

    async def call() -> None:
        async with gateway.client.stream(
            "POST", "/v1/completions", json=body, headers=headers
        ) as got:
            async for _ in got.aiter_raw():
                arrived.set()

    task = asyncio.create_task(call())
    async with asyncio.timeout(DEADLINE_S):
        await arrived.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
async def test_a_disconnect_closes_the_engine_connection_and_records_the_usage(
    stream: bool, engine: Any, weft: Any, until: Any
) -> None:
    arrived, dropped = asyncio.Event(), asyncio.Event()

    async def script(wire: Any, request: Any) -> None:
        call = request.headers["x-weft-call"]
        used = CallReport(call=call, service_s=0.75, waiting_s=0.25, output_tokens=3)
        stub.canned[f"/weft/calls/{call}"] = used.to_json().encode()
        if stream:
            await wire.stream(b"data: 1\n\n", end=False)
        else:
            arrived.set()
        await wire.closed()
        dropped.set()

    async with engine(script=script) as stub, weft(stub) as gateway:
        await disconnect(gateway, arrived, stream)
        async with asyncio.timeout(DEADLINE_S):
            await dropped.wait()
        await until(lambda: gateway.in_flight() == 0)
        session = (await gateway.client.get("/v1/sessions/run")).json()
        assert (session["service_s"], session["waiting_s"]) == (0.75, 0.25)
        assert session["output_tokens"] == 3
        metrics = (await gateway.client.get("/metrics")).text
        assert 'outcome="aborted",replica="r0"} 1.0' in metrics
        assert gateway.parts.registry["r0"].circuit.failures == 0


async def test_a_disconnect_closes_the_call_without_a_usage_report(
    engine: Any, weft: Any, until: Any
) -> None:
    arrived = asyncio.Event()

    async def script(wire: Any, request: Any) -> None:
        arrived.set()
        await wire.closed()

    async with engine(script=script, weft=False) as stub, weft(stub) as gateway:
        await disconnect(gateway, arrived, stream=False)
        await until(lambda: gateway.in_flight() == 0)
        session = (await gateway.client.get("/v1/sessions/run")).json()
        assert (session["calls"], session["service_s"]) == (1, None)


async def test_a_disconnect_inside_a_request_opens_no_call(engine: Any, weft: Any) -> None:
    async with engine() as stub, weft(stub) as gateway:
        host, port = gateway.url.removeprefix("http://").split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{")
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        assert (await gateway.call()).status_code == 200
        assert len(stub.requests) == 1


async def test_a_slow_reader_does_not_trigger_the_idle_timeout(
    engine: Any, weft: Any, until: Any, skip: Any
) -> None:
    """The gateway stops reading from an engine that writes faster than the client reads."""
    frame = b"data: " + b"x" * 65_000 + b"\n\n"
    written, idle_s = 0, 5.0

    async def script(wire: Any, request: Any) -> None:
        nonlocal written
        await wire.stream(end=False)
        for _ in range(400):
            await wire.pieces(frame, end=False)
            written += 1
        await wire.pieces(b"data: [DONE]\n\n")

    async with engine(script=script) as stub, weft(stub, idle_timeout_s=idle_s) as gateway:
        host, port = gateway.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port), limit=1024)
        body = b'{"model":"tiny","stream":true}'
        writer.write(
            b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b"
            % (len(body), body)
        )
        await reader.readuntil(b"\r\n\r\n")
        # Wait until the gateway has not read for several iterations of its loop.
        (connection,) = gateway.parts.registry["r0"].upstream.busy
        held_back = 0

        def stopped() -> bool:
            nonlocal held_back
            held_back = held_back + 1 if connection.deadline == math.inf else 0
            return held_back > 20

        await until(stopped)
        await skip(3 * idle_s)
        assert connection.usable
        assert written < 400
        got = bytearray()
        async with asyncio.timeout(DEADLINE_S):
            while b"[DONE]" not in got[-100:]:
                got += await reader.read(1 << 20)
        assert got.count(b"data: x") == 400
        writer.close()
