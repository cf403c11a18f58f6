"""Leases and counts of open calls on Redis with wrong clocks, dead gateways and deleted keys."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from random import Random

import pytest
from support.redis_rows import age_leases
from support.redis_table import run
from support.table import KEY, KEYS, closing, opening
from weft_gateway.model import Opening, ProgramKey


def test_calls_of_a_gateway_that_died_are_closed_and_its_programs_removed(redis_server):
    async def steps(alive, dead):
        mine, lost, ephemeral_call = (
            opening(now=0.0),
            opening(now=0.0, replica="r1"),
            opening(ProgramKey("t", "ephemeral"), now=0.0, replica="r1", ephemeral=True),
        )
        await alive.open_call(mine)
        await dead.open_call(lost)
        await dead.open_call(ephemeral_call)
        # The leases are valid for some time without renewal.
        await age_leases(alive, 100.0)
        assert list(await alive.expire(0.0, 1000.0)) == []
        assert await alive.count() == {"r0": 1, "r1": 2}
        await age_leases(alive, 30.0)
        gone = list(await alive.expire(0.0, 1000.0))
        assert [each[:2] for each in gone] == [(ephemeral_call.key, ("r1",))]
        program = await alive.get(KEY)
        assert [t.call for t in program.threads] == [mine.call]
        assert await alive.count() == {"r0": 1}
        # The gateway is alive after all: its late closing changes nothing.
        assert await dead.close_call(closing(lost, service_s=5.0)) is None
        assert (await alive.get(KEY)).service_s == 0.0
        assert await alive.count() == {"r0": 1}

    run(redis_server, steps, gateways=2)


def test_renewed_leases_do_not_expire(redis_server):
    async def steps(left, right):
        o = opening(now=0.0)
        await left.open_call(o)
        for _ in range(5):
            await age_leases(left, 100.0)
            for table in (left, right):
                assert list(await table.expire(0.0, 10.0)) == []
        assert (await left.close_call(closing(o, service_s=1.0))).service_s == 1.0

    run(redis_server, steps, gateways=2)


def test_work_of_a_gateway_that_died_is_removed(redis_server):
    async def steps(alive, dead):
        mine, lost = opening(costs={"r0": 5}), opening(replica="r1", costs={"r0": 1, "r1": 9})
        await alive.open_call(mine)
        await dead.open_call(lost)
        await age_leases(alive, 1000.0)
        await alive.expire(0.0, 1e9)
        assert alive.work() == {"r0": 5}
        assert await dead.close_call(closing(lost)) is None
        await alive.close_call(closing(mine))
        assert dead.work() == {"r0": 5}
        await dead.count()
        assert alive.work() == dead.work() == {}

    run(redis_server, steps, gateways=2)


@pytest.mark.parametrize("lost", ["work", "calls", "in_flight"])
def test_deleted_work_is_rebuilt(redis_server, lost):
    async def steps(table):
        keys = table._store.keys
        o = opening(costs={"r0": 5})
        await table.open_call(o)
        await table._store.redis.delete(getattr(keys, lost), keys.work)
        await table.expire(0.0, 1e9)
        await table.count()
        assert table.work() == {"r0": 5}
        await table.close_call(closing(o))
        assert table.work() == {}

    run(redis_server, steps)


@pytest.mark.parametrize("first", ["right", "off"])
@pytest.mark.parametrize("off_s", [180.0, -180.0])
def test_a_gateway_whose_clock_is_off_does_not_abort_live_calls(redis_server, off_s, first):
    async def steps(right, off):
        now = time.time()
        theirs, mine = opening(now=now), opening(now=now + off_s, replica="r1")
        await right.open_call(theirs)
        await off.open_call(mine)
        checks = [(right, now), (off, now + off_s)]
        for table, its_now in (checks if first == "right" else checks[::-1]) * 2:
            assert list(await table.expire(its_now, 1e9)) == []
        assert {t.call for t in (await right.get(KEY)).threads} == {theirs.call, mine.call}
        assert await right.count() == {"r0": 1, "r1": 1}
        for table, o in ((right, theirs), (off, mine)):
            assert (await table.close_call(closing(o, now=now, service_s=1.0))) is not None
        assert (await right.get(KEY)).service_s == 2.0

    run(redis_server, steps, gateways=2)


def test_a_lease_renewed_between_check_and_closing_stays_open(redis_server):
    async def steps(left, right):
        o = opening()
        await left.open_call(o)
        await age_leases(left, 1000.0)
        lapsed = right._store.lapsed

        async def then_renew(*about):
            found = await lapsed(*about)
            await left.expire(0.0, 1e9)
            return found

        right._store.lapsed = then_renew
        # The right gateway finds the lease lapsed. Its closing script then finds the lease renewed.
        left._store.lapsed = lambda *_: asyncio.sleep(0, [])
        assert list(await right.expire(0.0, 1e9)) == []
        assert (await left.close_call(closing(o, service_s=1.0))).service_s == 1.0

    run(redis_server, steps, gateways=2)


def test_count_is_current_on_a_gateway_without_traffic(redis_server):
    async def steps(left, right):
        calls = [opening(replica="r0") for _ in range(6)]
        for o in calls:
            await right.open_call(o)
        assert await left.count() == {"r0": 6}
        for o in calls:
            await right.close_call(closing(o))
        # The left gateway makes no calls that would update its counts.
        assert left.in_flight() == {"r0": 6}
        assert await left.count() == left.in_flight() == {}

    run(redis_server, steps, gateways=2)


@pytest.mark.parametrize("seed", range(4))
def test_counts_equal_opened_minus_closed_on_all_gateways_despite_deletions(redis_server, seed):
    async def steps(*tables):
        rng, open_calls = Random(seed), []
        keys = tables[0]._store.keys
        actions = ("open", "open", "open", "close", "close", "row", "sums", "expire")
        for _ in range(150):
            table, action, key = rng.choice(tables), rng.choice(actions), rng.choice(KEYS)
            if action == "open":
                o = opening(key, replica=f"r{rng.randrange(3)}", ephemeral=key == KEYS[3])
                # A call may be closed through any gateway. Only one gateway renews its lease.
                await table.open_call(o)
                open_calls.append(o)
                assert table.in_flight() == counted(open_calls)
            elif action == "close" and open_calls:
                o = open_calls.pop(rng.randrange(len(open_calls)))
                await table.close_call(closing(o, service_s=1.0))
                assert table.in_flight() == counted(open_calls)
            elif action == "row":
                await table._store.redis.delete(keys.row(key))
            elif action == "sums":
                await table._store.redis.delete(keys.in_flight)
            elif action == "expire":
                await table.expire(2.0, 10.0)
            for each in tables:
                assert await each.count() == counted(open_calls)
        for o in open_calls:
            await rng.choice(tables).close_call(closing(o))
        for table in tables:
            await table.expire(100.0, 10.0)
            assert await table.count() == {}

    run(redis_server, steps, gateways=3)


def counted(calls: list[Opening]) -> dict[str, int]:
    return dict(Counter(o.candidate for o in calls))


@pytest.mark.parametrize("lost", ["in_flight", "calls", "leases", "leases and calls", "row"])
def test_deleted_counts_and_leases_are_rebuilt(redis_server, lost):
    async def steps(left, right):
        keys = left._store.keys
        names = {name: getattr(keys, name) for name in ("in_flight", "calls", "leases")}
        names["row"] = keys.row(KEY)
        mine, theirs = opening(), opening(replica="r1")
        await left.open_call(mine)
        await right.open_call(theirs)
        await left._store.redis.delete(*[names[name] for name in lost.split(" and ")])
        for table in (left, right):
            await table.expire(0.0, 1e9)
        assert await left.count() == await right.count() == {"r0": 1, "r1": 1}
        # The right gateway dies.
        await age_leases(left, 1000.0)
        await left.expire(0.0, 1e9)
        assert await left.count() == {"r0": 1}
        third = opening(replica="r2")
        await left.open_call(third)
        assert left.in_flight() == {"r0": 1, "r2": 1}
        for o in (mine, third):
            await left.close_call(closing(o))
        assert await left.count() == {}

    run(redis_server, steps, gateways=2)


def test_calls_of_a_dead_gateway_are_closed_although_their_leases_were_deleted(redis_server):
    async def steps(alive, dead):
        await dead.open_call(opening())
        await alive._store.redis.delete(alive._store.keys.leases)
        assert list(await alive.expire(0.0, 1e9)) == []
        assert await alive.count() == {"r0": 1}
        await age_leases(alive, 1000.0)
        await alive.expire(0.0, 1e9)
        assert await alive.count() == {}
        assert (await alive.get(KEY)).threads == ()

    run(redis_server, steps, gateways=2)


def test_counts_of_an_earlier_release_and_of_removed_replicas_are_ignored(redis_server):
    async def steps(table):
        store = table._store
        # An earlier release named replicas by their index and stored the counts separately.
        await store.redis.hset(store.keys.in_flight, mapping={"r0": 3, "r7": 1})
        removed = opening(replica="r7", eligible=frozenset({"r7"}), sticky=True)
        await table.open_call(removed)
        assert await table.count() == {"r7": 1}
        await table.close_call(closing(removed))
        assert (await table.get(KEY)).home == "r7"
        now_named = "10.0.0.1:8001"
        o = opening(replica=now_named, eligible=frozenset({now_named}), sticky=True, now=3.0)
        opened = await table.open_call(o)
        assert (opened.replica, opened.program.home) == (now_named, now_named)
        assert table.in_flight() == {now_named: 1}
        await table.close_call(closing(o, now=4.0))

    run(redis_server, steps)
