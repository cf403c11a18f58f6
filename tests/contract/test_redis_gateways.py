"""The number of gateways on one real Redis server."""

from __future__ import annotations

import pytest
from support.redis_table import run
from weft_gateway.programs.redis_gateways import RedisGateways
from weft_gateway.programs.table import TableUnavailable


def test_gateways_count_each_other_until_they_leave(redis_server):
    async def steps(table):
        one, two = (RedisGateways(table.link, 100.0) for _ in range(2))
        assert one.count == 1
        for _ in range(2):
            for gateway in (one, two):
                await gateway.refresh()
        assert (one.count, two.count) == (2, 2)
        await two.leave()
        await one.refresh()
        assert one.count == 1

    run(redis_server, steps)


def test_a_gateway_that_died_is_counted_for_one_lease(redis_server):
    async def steps(table):
        one, two = (RedisGateways(table.link, 100.0) for _ in range(2))
        await two.refresh()
        store = table.link
        for member, score in await store.redis.zrange(store.keys.gateways, 0, -1, withscores=True):
            await store.redis.zadd(store.keys.gateways, {member: score - 90.0})
        await one.refresh()
        assert one.count == 2
        for member, score in await store.redis.zrange(store.keys.gateways, 0, -1, withscores=True):
            await store.redis.zadd(store.keys.gateways, {member: score - 20.0})
        await one.refresh()
        assert one.count == 1

    run(redis_server, steps)


def test_the_last_count_stays_while_redis_is_away(redis_server):
    async def steps(table):
        one, two = (RedisGateways(table.link, 100.0) for _ in range(2))
        await one.refresh()
        await two.refresh()
        table.link.away = True
        with pytest.raises(TableUnavailable):
            await two.refresh()
        await two.leave()
        assert two.count == 2
        table.link.away = False

    run(redis_server, steps)
