"""Calls, ends and starts of one program race through two gateways on one Redis. The counts agree at
the end. `weft` checks the process table.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.redis_server import RedisServer

pytestmark = [pytest.mark.system, pytest.mark.anyio]


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """Yield the settings of gateways that share a table."""
    server = RedisServer(tmp_path)
    # The long timeout keeps a busy machine from looking like an outage.
    yield {"redis_url": server.url, "redis_timeout_s": 20, "balancer": "locality"}
    server.kill()


@pytest.mark.parametrize("calls", [2, 50])
async def test_concurrent_first_calls_belong_to_one_program(
    calls: int, shared: Any, engine: Any, weft: Any
) -> None:
    settings = {**shared, "locality_threshold_tokens": 0}
    async with (
        engine() as one,
        engine() as two,
        weft(one, two, **settings) as first,
        weft(one, two, **settings) as second,
    ):
        for number in range(5):
            name = f"run-{number}"
            got = await asyncio.gather(
                *((first, second)[n % 2].call(headers={"x-session-id": name}) for n in range(calls))
            )
            assert {answer.status_code for answer in got} == {200}
            # All calls use the same home replica.
            assert len({answer.headers["x-weft-replica"] for answer in got}) == 1
            session = (await second.client.get(f"/v1/sessions/{name}")).json()
            assert (session["calls"], session["calls_in_flight"]) == (calls, 0)
        counts = await first.parts.table.counts()
        assert counts == (5, 0, 5)
        assert await second.parts.table.counts() == counts
        for gateway in (first, second):  # A call refreshes its counts.
            await gateway.call(body={"session_id": "run-0"})


async def test_every_call_is_counted_once_when_ends_race_with_calls(
    shared: Any, engine: Any, weft: Any
) -> None:
    async with (
        engine() as stub,
        weft(stub, **shared) as first,
        weft(stub, **shared) as second,
    ):
        closed = 0

        async def call(gateway: Any, n: int) -> None:
            headers = {"x-dynamo-session-id": "run"}
            if n % 7 == 0:
                headers["x-dynamo-session-final"] = "true"
            assert (await gateway.call(headers=headers)).status_code == 200

        async def end(gateway: Any) -> None:
            nonlocal closed
            got = await gateway.client.delete("/v1/sessions/run")
            assert got.status_code in (200, 404)
            closed += got.status_code == 200

        async def start(gateway: Any) -> None:
            got = await gateway.client.post("/v1/sessions", json={"id": "run"})
            assert got.status_code in (200, 201)

        for _ in range(4):
            work = []
            for n in range(40):
                gateway, other = (first, second) if n % 2 else (second, first)
                work.append(call(gateway, n))
                if n % 3 == 0:
                    work.append(end(other))
                if n % 5 == 0:
                    work.append(start(gateway))
            await asyncio.gather(*work)
        assert closed > 0
        assert len(stub.requests) == 160
        # A last call recreates the session. The deletion then ends it.
        await first.call(headers={"x-session-id": "run"})
        await end(second)
        assert (await second.client.get("/v1/sessions/run")).status_code == 404
        # The other gateway has receipts of its calls and did not receive the deletion.
        assert (await first.client.get("/v1/sessions/run")).json()["status"] == "finished"
        counts = await first.parts.table.counts()
        assert counts.created == counts.ended > 0
        assert counts.alive == 0
        for gateway in (first, second):
            await gateway.call(body={"session_id": "last"})


async def test_gateways_that_share_a_table_share_the_limit_on_programs(
    shared: Any, engine: Any, weft: Any
) -> None:
    settings = {**shared, "max_programs_per_tenant": 10}
    async with (
        engine() as stub,
        weft(stub, **settings) as first,
        weft(stub, **settings) as second,
    ):
        await asyncio.gather(
            *(
                gateway.call(headers={"x-session-id": f"{which}-{n}"})
                for n in range(60)
                for which, gateway in enumerate((first, second))
            )
        )
        # Programs with open calls are not evicted, so the number exceeded the limit. Each new
        # program now evicts idle ones until the limit holds.
        for n in range(10):
            await (first, second)[n % 2].call(headers={"x-session-id": f"late-{n}"})
        listed = (await first.client.get("/v1/sessions?limit=1000")).json()["data"]
        listed = [session for session in listed if session["status"] != "finished"]
        assert [session["id"] for session in listed] == [f"late-{n}" for n in range(10)]
        assert await second.parts.table.counts() == (130, 120, 10)
