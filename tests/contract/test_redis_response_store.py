"""Stored responses on Redis, shared by several gateways."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count

import pytest
from support.redis_proxy import Line, RedisProxy
from support.redis_server import RedisServer
from weft_gateway.model import ProgramKey
from weft_gateway.policies.fair_lru import FairLRU
from weft_gateway.programs.redis_link import RedisLink
from weft_gateway.programs.redis_response_store import RedisResponseStore
from weft_gateway.programs.table import TableUnavailable

_prefixes = (f"stores{number}" for number in count())
KEY = ProgramKey("t", "a\nprogram")


def run(server: RedisServer, steps: Callable[..., Awaitable[None]], **options: float) -> None:
    """Run the steps on the response stores of two gateways. The first one uses a proxy."""

    async def main() -> None:
        prefix = next(_prefixes)
        async with RedisProxy(server.port) as proxy:
            stores = [
                RedisResponseStore(RedisLink(url, prefix, 5.0), **options)
                for url in (proxy.url, server.url)
            ]
            try:
                await steps(proxy, *stores)
            finally:
                for each in stores:
                    await each._link.aclose()

    asyncio.run(main())


def test_gateways_share_stored_responses(redis_server):
    async def steps(proxy, left, right):
        await left.remember(KEY, "resp_1", "r1", "a\nthread")
        assert right.root("t", "resp_1") == "resp_1"
        found = await right.find("t", "resp_1")
        assert (found.program, found.replica, found.thread) == (KEY.program, "r1", "a\nthread")
        assert right.place("t", "resp_1") == (KEY.program, "a\nthread")
        assert right.root("t", "resp_1") == KEY.program
        assert await right.find("other", "resp_1") is None
        await right.forget("t", "resp_1")
        assert await right.find("t", "resp_1") is None
        assert await right._read(b"t/resp_1") is None

    run(redis_server, steps)


def test_responses_remembered_during_an_outage_are_written_by_flush(redis_server):
    async def steps(proxy, left, right):
        proxy.set(Line.CUT)
        await left.remember(KEY, "resp_1", "r1")
        assert (await left.find("t", "resp_1")).replica == "r1"
        with pytest.raises(TableUnavailable):
            await left.find("t", "resp_2")
        assert await right.find("t", "resp_1") is None
        proxy.set(Line.OPEN)
        await left.flush()
        assert (await right.find("t", "resp_1")).replica == "r1"

    run(redis_server, steps)


def test_a_full_store_evicts_the_responses_of_the_largest_tenant(redis_server):
    async def steps(proxy, left, right):
        quiet, loud = ProgramKey("quiet", "p"), ProgramKey("loud", "p")
        for link in ("a", "b"):
            await left.remember(quiet, link, "r0")
        for number in range(10):
            await left.remember(loud, f"r{number}", "r0")
        await left.remember(quiet, "c", "r0")
        await right.forget("quiet", "b")
        known = {m async for m, _ in left._link.redis.hscan_iter(left._link.keys.answers)}
        assert known == {b"quiet/a", b"quiet/c", b"loud/r7", b"loud/r8", b"loud/r9"}
        tenants = left._link.keys.of_answers[3]
        assert await left._link.redis.zrange(tenants, 0, -1, withscores=True) == [
            (b"quiet", 2.0), (b"loud", 3.0),
        ]  # fmt: skip
        for link in ("a", "c"):
            await right.forget("quiet", link)
        assert await left._link.redis.zrange(tenants, 0, -1) == [b"loud"]

    run(redis_server, steps, limit=6)


def test_unwritten_responses_are_bounded_per_tenant(redis_server):
    async def steps(proxy, left, right):
        left._room = FairLRU(4)
        proxy.set(Line.CUT)
        for link in ("a", "b"):
            await left.remember(ProgramKey("quiet", "p"), link, "r0")
        for number in range(10):
            await left.remember(ProgramKey("loud", "p"), f"r{number}", "r0")
        assert set(left._unwritten) == {b"quiet/a", b"quiet/b", b"loud/r8", b"loud/r9"}
        proxy.set(Line.OPEN)
        await left.flush()
        assert await right.find("quiet", "a") is not None

    run(redis_server, steps)


def test_the_oldest_responses_are_evicted_by_number_and_age(redis_server):
    async def steps(proxy, left, right):
        for number in range(8):
            left._clock = right._clock = lambda number=number: 100.0 + number
            await left.remember(KEY, f"resp_{number}", "r0")
        kept = [n for n in range(8) if await right._read(b"t/resp_%d" % n)]
        assert kept == [5, 6, 7]
        left._clock = right._clock = lambda: 120.0
        assert await right.find("t", "resp_7") is None
        await left.remember(KEY, "resp_8", "r0")
        assert await right._link.redis.zrange(right._link.keys.of_answers[1], 0, -1) == [
            b"t/resp_8"
        ]

    run(redis_server, steps, limit=3, keep_s=10.0)


def test_a_response_id_belongs_to_the_first_tenant_on_all_gateways(redis_server):
    async def steps(proxy, left, right):
        mine, theirs = ProgramKey("mine", "p"), ProgramKey("theirs", "q")
        await left.remember(mine, "resp_1", "r0")
        await right.remember(theirs, "resp_1", "r1")
        assert await right.find("theirs", "resp_1") is None
        assert await left.find("theirs", "resp_1") is None
        assert (await right.find("mine", "resp_1")).replica == "r0"
        await right.forget("theirs", "resp_1")
        assert (await right.find("mine", "resp_1")).replica == "r0"
        owners = left._link.keys.of_answers[4]
        assert await left._link.redis.hgetall(owners) == {b"resp_1": b"mine"}
        # Session names are separate for each tenant.
        for stores, key in ((left, mine), (right, theirs)):
            await stores.remember(key, "\x01session:run", "")
        assert (await left.find("theirs", "\x01session:run")).program == "q"
        await left.forget("mine", "resp_1")
        await right.forget("mine", "resp_1")
        assert await left._link.redis.hgetall(owners) == {}
        await right.remember(theirs, "resp_1", "r1")
        assert (await left.find("theirs", "resp_1")).replica == "r1"

    run(redis_server, steps)


def test_one_tenant_keeps_a_response_id_that_two_stored_during_an_outage(redis_server):
    async def steps(proxy, left, right):
        mine, theirs = ProgramKey("mine", "p"), ProgramKey("theirs", "q")
        proxy.set(Line.CUT)
        await left.remember(mine, "resp_1", "r0")
        await right.remember(theirs, "resp_1", "r1")
        assert (await left.find("mine", "resp_1")).replica == "r0"
        proxy.set(Line.OPEN)
        await left.flush()
        assert await left.find("mine", "resp_1") is None
        assert await right.find("mine", "resp_1") is None
        assert (await left.find("theirs", "resp_1")).replica == "r1"

    run(redis_server, steps)
