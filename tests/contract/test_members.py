"""The stores of members keep one contract: in memory, and on a real Redis server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from support.redis_server import RedisServer
from support.redis_table import run
from weft_gateway.model.member import Member, MemberState
from weft_gateway.programs.members import MemberStore, RedisMembers
from weft_gateway.programs.table import TableUnavailable

NONE: frozenset[str] = frozenset()
GPU = Member("gpu-0:8000", "http://gpu-0:8000", MemberState.DRAINING, 12.5, 60.0, True)


@pytest.fixture(params=["memory", "redis"])
def with_store(request: pytest.FixtureRequest) -> Callable[[Any], None]:
    """Return a function that runs steps on an empty store."""
    if request.param == "memory":
        return lambda steps: asyncio.run(steps(MemberStore()))
    server: RedisServer = request.getfixturevalue("redis_server")
    return lambda steps: run(server, lambda table: steps(RedisMembers(table.link, 100.0)))


def test_a_new_store_has_no_records(with_store: Any) -> None:
    async def steps(store: Any) -> None:
        latest = await store.read(NONE)
        assert (latest.records, latest.behind, latest.background) == ({}, 0, NONE)
        assert latest.now_s > 1e9

    with_store(steps)


def test_records_are_written_replaced_and_deleted(with_store: Any) -> None:
    async def steps(store: Any) -> None:
        first = await store.read(NONE)
        assert await store.write({GPU.name: GPU, "b": Member("b", "http://b")}, first.version)
        second = await store.read(NONE)
        assert second.records == {GPU.name: GPU, "b": Member("b", "http://b")}
        assert second.version != first.version
        assert await store.write({GPU.name: None}, second.version)
        assert (await store.read(NONE)).records == {"b": Member("b", "http://b")}

    with_store(steps)


def test_a_change_of_an_old_version_is_refused(with_store: Any) -> None:
    async def steps(store: Any) -> None:
        old = (await store.read(NONE)).version
        assert await store.write({"a": Member("a", "http://a")}, old)
        assert not await store.write({"a": None}, old)
        assert (await store.read(NONE)).records.keys() == {"a"}

    with_store(steps)


def test_one_of_many_concurrent_changes_of_a_version_is_made(with_store: Any) -> None:
    async def steps(store: Any) -> None:
        version = (await store.read(NONE)).version
        changes = [{f"r{n}": Member(f"r{n}", f"http://r{n}")} for n in range(20)]
        made = await asyncio.gather(*(store.write(change, version) for change in changes))
        assert sum(made) == 1
        assert len((await store.read(NONE)).records) == 1

    with_store(steps)


def test_background_responses_are_reported(with_store: Any) -> None:
    async def steps(store: Any) -> None:
        busy = frozenset({"[::1]:8000", "gpu-0:8000"})
        assert (await store.read(busy)).background == busy
        assert (await store.read(NONE)).background == NONE

    with_store(steps)


def test_a_change_waits_for_the_confirmation_of_every_gateway(redis_server: RedisServer) -> None:
    async def steps(table: Any) -> None:
        one, two = (RedisMembers(table.link, 100.0) for _ in range(2))
        version = (await one.read(NONE)).version
        busy = frozenset({"gpu-0:8000"})
        await two.read(busy)
        assert await one.write({GPU.name: GPU}, version)
        assert (await one.read(NONE)).behind == 2  # It confirms with the next reading.
        seen = await one.read(NONE)
        assert (seen.gateways, seen.behind, seen.background) == (2, 1, busy)
        assert (await two.read(NONE)).records == {GPU.name: GPU}
        assert (await one.read(NONE)).behind == 1
        await two.read(NONE)
        assert (await one.read(NONE)).behind == 0
        assert await one.write({GPU.name: None}, (await one.read(NONE)).version)
        await one.read(NONE)
        assert (await one.read(NONE)).behind == 1
        await two.leave()
        seen = await one.read(NONE)
        assert (seen.gateways, seen.behind) == (1, 0)

    run(redis_server, steps)


def test_a_gateway_that_died_is_not_waited_for_after_its_lease(redis_server: RedisServer) -> None:
    async def steps(table: Any) -> None:
        one, dead = RedisMembers(table.link, 100.0), RedisMembers(table.link, 100.0)
        await dead.read(frozenset({"r0"}))
        version = (await one.read(NONE)).version
        await one.write({GPU.name: GPU}, version)
        await one.read(NONE)
        assert (await one.read(NONE)).behind == 1
        key = table.link.keys.of_members[2]
        for gateway, entry in (await table.link.redis.hgetall(key)).items():
            at, rest = entry.split(b" ", 1)
            if b"r0" in rest:
                old = b"%.6f %b" % (float(at) - 200.0, rest)
                await table.link.redis.hset(key, gateway, old)
        latest = await one.read(NONE)
        assert (latest.gateways, latest.behind, latest.background) == (1, 0, NONE)

    run(redis_server, steps)


def test_records_are_written_back_after_redis_has_lost_them(redis_server: RedisServer) -> None:
    async def steps(table: Any) -> None:
        one, two = (RedisMembers(table.link, 100.0) for _ in range(2))
        await one.write({GPU.name: GPU}, (await one.read(NONE)).version)
        for store in (one, two):
            assert (await store.read(NONE)).records == {GPU.name: GPU}
        await table.link.redis.delete(*table.link.keys.of_members)
        # Both notice at the same time, and a third gateway has just started.
        three = RedisMembers(table.link, 100.0)
        for each in await asyncio.gather(one.read(NONE), two.read(NONE)):
            assert each.records == {GPU.name: GPU}
        assert (await three.read(NONE)).records == {GPU.name: GPU}

    run(redis_server, steps)


def test_a_record_that_this_release_cannot_read_is_ignored(redis_server: RedisServer) -> None:
    async def steps(table: Any) -> None:
        store = RedisMembers(table.link, 100.0)
        await store.write({GPU.name: GPU}, (await store.read(NONE)).version)
        version_key, key, _ = table.link.keys.of_members
        await table.link.redis.hset(key, mapping={"x": b'{"name": 7}', "y": b"\xff", "z": b""})
        await table.link.redis.set(version_key, "other")
        assert (await store.read(NONE)).records == {GPU.name: GPU}

    run(redis_server, steps)


def test_nothing_changes_while_redis_is_away(redis_server: RedisServer) -> None:
    async def steps(table: Any) -> None:
        store = RedisMembers(table.link, 100.0)
        version = (await store.read(NONE)).version
        table.link.away = True
        with pytest.raises(TableUnavailable):
            await store.write({GPU.name: GPU}, version)
        with pytest.raises(TableUnavailable):
            await store.read(NONE)
        await store.leave()
        table.link.away = False
        assert (await store.read(NONE)).records == {}

    run(redis_server, steps)
