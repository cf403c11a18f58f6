"""Two gateways, one process table on a real Redis server."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.redis_server import RedisServer

pytestmark = [pytest.mark.system, pytest.mark.anyio]


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path)
    yield server
    server.kill()


async def test_gateways_see_each_others_programs(
    redis: RedisServer, engine: Any, weft: Any
) -> None:
    async with (
        engine() as stub,
        weft(stub, redis_url=redis.url) as first,
        weft(stub, redis_url=redis.url) as second,
    ):
        await first.client.post("/v1/sessions", json={"id": "s"})
        for gateway in (first, second, first):
            got = await gateway.call(headers={"x-session-id": "s"})
            assert got.status_code == 200
        session = (await second.client.get("/v1/sessions/s")).json()
        assert (session["calls"], session["calls_in_flight"]) == (3, 0)


async def test_many_calls_through_both_leave_nothing_behind(
    redis: RedisServer, engine: Any, weft: Any
) -> None:
    async with (
        engine() as stub,
        weft(stub, redis_url=redis.url) as first,
        weft(stub, redis_url=redis.url) as second,
    ):
        answers = await asyncio.gather(
            *(
                gateway.call(headers={"x-session-id": f"s{n % 7}"} if n % 2 else {})
                for n in range(40)
                for gateway in (first, second)
            )
        )
        assert {answer.status_code for answer in answers} == {200}
        listed = (await first.client.get("/v1/sessions")).json()["data"]
        assert sum(session["calls"] for session in listed) == 40
        assert len(listed) == 7
        # What a gateway knows of the other's calls is as old as its last round trip.
        for gateway in (first, second):
            await gateway.call()


async def test_without_redis_calls_are_refused_until_it_is_back(
    redis: RedisServer, engine: Any, weft: Any
) -> None:
    async with engine() as stub, weft(stub, redis_url=redis.url) as gateway:
        assert (await gateway.call()).status_code == 200
        redis.kill()
        got = await gateway.call()
        assert (got.status_code, got.json()["error"]["code"]) == (503, "table_unavailable")
        assert (await gateway.client.get("/v1/sessions/s")).status_code == 503
        redis.start()
        assert (await gateway.call()).status_code == 200
        assert len(stub.requests) == 2
