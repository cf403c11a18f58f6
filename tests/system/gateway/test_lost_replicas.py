"""Replicas that disappear without closing their connections, and replicas that are only slow."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

pytestmark = [pytest.mark.system, pytest.mark.anyio]

SOON = {"health_interval_s": 0.05, "lost_after_s": 0.2}


class BlockedScript:
    """A script that answers after `go` is set."""

    def __init__(self) -> None:
        self.go = asyncio.Event()

    async def __call__(self, wire: Any, request: Any) -> None:
        if request.json.get("stream"):
            await wire.stream(b"data: 1\n\n", end=False)
        await self.go.wait()
        if request.json.get("stream"):
            await wire.pieces(b"data: [DONE]\n\n")
        else:
            await wire.plain({"ok": True})


@pytest.mark.parametrize("how", ["refuses", "is ill"])
@pytest.mark.parametrize("stream", [False, True])
async def test_calls_to_a_lost_replica_fail_immediately(
    how: str, stream: bool, engine: Any, weft: Any, until: Any
) -> None:
    script = BlockedScript()
    async with engine(script=script) as stub, weft(stub, **SOON) as gateway:
        assert gateway.parts.registry["r0"].upstream.timeouts.lost_s == SOON["lost_after_s"]
        call = asyncio.create_task(
            gateway.call(body={"stream": stream}, headers={"x-weft-program": "run"})
        )
        await until(lambda: stub.requests)
        if how == "refuses":
            stub.refuse()
        else:  # vLLM reports a dead engine process in this way.
            stub.healthy = False
        got = await call
        if stream:
            assert got.text.startswith("data: 1\n\n")
            error = json.loads(got.text.split("data: ")[-1])["error"]
        else:
            assert got.status_code == 502
            error = got.json()["error"]
        assert error["code"] == "replica_lost"
        session = (await gateway.client.get("/v1/sessions/run")).json()
        assert (session["calls_in_flight"], session["errors"]) == (0, 1)
        script.go.set()


async def test_a_call_that_still_receives_bytes_is_not_aborted(
    engine: Any, weft: Any, until: Any, skip: Any
) -> None:
    async def drain(wire: Any, request: Any) -> None:
        await wire.stream(b"data: 0\n\n", end=False)
        while gateway.parts.registry["r0"].circuit.alive:
            await wire.pieces(b"data: 1\n\n", end=False)
            await asyncio.sleep(0.02)
        for _ in range(20):  # Twice the allowed time of silence.
            await wire.pieces(b"data: 2\n\n", end=False)
            await skip(1)
        await wire.pieces(b"data: [DONE]\n\n")

    settings = SOON | {"lost_after_s": 10}
    async with engine(script=drain) as stub, weft(stub, **settings) as gateway:
        call = asyncio.create_task(gateway.call(body={"stream": True}))
        await until(lambda: stub.requests)
        stub.refuse()
        got = await call
        assert got.text.endswith("data: 2\n\ndata: [DONE]\n\n")


async def test_calls_to_a_slow_replica_are_not_aborted(engine: Any, weft: Any, until: Any) -> None:
    script = BlockedScript()
    async with engine(script=script) as stub, weft(stub, connect_timeout_s=0.2, **SOON) as gateway:
        call = asyncio.create_task(gateway.call())
        await until(lambda: stub.requests)
        stub.late = asyncio.Event()
        circuit = lambda: gateway.parts.registry["r0"].circuit  # noqa: E731
        await until(lambda: not circuit().alive)
        assert "Timeout" in circuit().last_error
        failures = circuit().failures
        await until(lambda: circuit().failures > failures + 3)
        stub.late.set()
        script.go.set()
        assert (await call).status_code == 200


async def test_calls_to_a_replica_that_recovers_in_time_are_not_aborted(
    engine: Any, weft: Any, until: Any
) -> None:
    script = BlockedScript()
    settings = SOON | {"lost_after_s": 3600}
    async with engine(script=script) as stub, weft(stub, **settings) as gateway:
        call = asyncio.create_task(gateway.call())
        await until(lambda: stub.requests)
        circuit = lambda: gateway.parts.registry["r0"].circuit  # noqa: E731
        for healthy in (False, True):
            stub.healthy = healthy
            await until(lambda: circuit().healthy == healthy)  # noqa: B023
        script.go.set()
        assert (await call).status_code == 200


async def test_an_endless_answer_is_aborted_at_the_size_limit(engine: Any, weft: Any) -> None:
    sent = 0

    async def endless(wire: Any, request: Any) -> None:
        nonlocal sent
        await wire.send(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
            b"transfer-encoding: chunked\r\n\r\n"
        )
        while True:
            await wire.pieces(b"x" * 65_536, end=False)
            sent += 65_536

    async with engine(script=endless) as stub, weft(stub, max_answer_bytes=1_000_000) as gateway:
        for path in ("/v1/chat/completions", "/v1/embeddings", "/tokenize"):
            got = await gateway.call(path)
            error = got.json()["error"]
            assert (got.status_code, error["code"]) == (502, "replica_answer_too_large")
            assert "1000000 bytes" in error["message"]
        assert sent < 64_000_000


async def test_a_stream_is_cut_at_its_end_marker(engine: Any, weft: Any) -> None:
    async def continue_after_end(wire: Any, request: Any) -> None:
        await wire.stream(b"data: 1\n\n", b"data: [DONE]\n\n", end=False)
        while True:
            await wire.pieces(b": more\n\n" * 1000, end=False)

    async with engine(script=continue_after_end) as stub, weft(stub) as gateway:
        got = await gateway.call(body={"stream": True})
        assert got.text.startswith("data: 1\n\ndata: [DONE]\n\n")
        assert len(got.content) < 100_000
