"""The stores of tuned values keep one contract: in memory, and on a real Redis server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from support.redis_server import RedisServer
from support.redis_table import run
from weft_gateway.programs.redis_tuning import RedisTuning
from weft_gateway.programs.tuning import TuningStore


@pytest.fixture(params=["memory", "redis"])
def with_store(request: pytest.FixtureRequest) -> Callable[[Any], None]:
    """Return a function that runs steps on an empty store."""
    if request.param == "memory":
        return lambda steps: asyncio.run(steps(TuningStore()))
    server: RedisServer = request.getfixturevalue("redis_server")
    return lambda steps: run(server, lambda table: steps(RedisTuning(table.link, 100.0)))


def test_values_are_written_once_per_version(with_store: Any) -> None:
    async def steps(store: Any) -> None:
        assert await store.read() == ("", {})
        assert await store.write({"alpha": 0.3}, "")
        assert not await store.write({"alpha": 0.9}, "")
        version, values = await store.read()
        assert values == {"alpha": 0.3}
        assert await store.write({"alpha": 0.1, "other": 0.5}, version)
        assert (await store.read())[1] == {"alpha": 0.1, "other": 0.5}
        assert await store.lead()

    with_store(steps)


def test_one_of_two_gateways_leads_until_it_resigns_or_is_gone(redis_server: RedisServer) -> None:
    async def steps(left: Any, right: Any) -> None:
        one, two = RedisTuning(left.link, 100.0), RedisTuning(right.link, 100.0)
        assert [await one.lead(), await two.lead(), await one.lead()] == [True, False, True]
        await two.resign()
        assert not await two.lead()
        await one.resign()
        assert [await two.lead(), await one.lead()] == [True, False]
        await two.resign()
        # A gateway that has died does not renew its lock.
        assert await RedisTuning(left.link, 0.05).lead()
        async with asyncio.timeout(20):
            while not await two.lead():  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    run(redis_server, steps, gateways=2)


def test_values_are_written_back_after_redis_has_lost_them(redis_server: RedisServer) -> None:
    async def steps(table: Any) -> None:
        one, two, late = (RedisTuning(table.link, 100.0) for _ in range(3))
        await one.write({"alpha": 0.3}, "")
        assert [await each.read() for each in (one, two)] == [await late.read()] * 2
        await table.link.redis.delete(table.link.keys.tuning)
        # Both notice at the same time, and a third gateway has just started.
        new = RedisTuning(table.link, 100.0)
        found = await asyncio.gather(one.read(), two.read())
        assert found[0] == found[1] == await new.read()
        assert found[0][1] == {"alpha": 0.3}
        # A gateway that comes later does not replace newer values.
        assert await one.write({"alpha": 0.9}, found[0][0])
        assert (await late.read())[1] == {"alpha": 0.9}

    run(redis_server, steps)
