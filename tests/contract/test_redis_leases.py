"""Leases of open calls and counts of them on Redis: clocks, gateways that die, lost keys."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from random import Random

import pytest
from support.redis_rows import age_leases
from support.redis_table import run
from support.table import KEY, KEYS, closing, opening
from weft_gateway.model import EndedProgram, Opening, ProgramKey


def test_calls_of_a_gateway_that_died_are_closed_and_its_programs_removed(redis_server):
    async def steps(alive, dead):
        mine, lost, nameless = (
            opening(now=0.0),
            opening(now=0.0, replica="r1"),
            opening(ProgramKey("t", "nameless"), now=0.0, replica="r1", ephemeral=True),
        )
        await alive.open_call(mine)
        await dead.open_call(lost)
        await dead.open_call(nameless)
        # Its leases hold for a while without a sign.
        await age_leases(alive, 100.0)
        assert list(await alive.expire(0.0, 1000.0)) == []
        assert await alive.count() == {"r0": 1, "r1": 2}
        await age_leases(alive, 30.0)
        assert list(await alive.expire(0.0, 1000.0)) == [EndedProgram(nameless.key, ())]
        program = await alive.get(KEY)
        assert [t.call for t in program.threads] == [mine.call]
        assert await alive.count() == {"r0": 1}
        # The dead were not dead: closing late changes nothing more.
        assert await dead.close_call(closing(lost, service_s=5.0)) is None
        assert (await alive.get(KEY)).service_s == 0.0
        assert await alive.count() == {"r0": 1}

    run(redis_server, steps, gateways=2)


def test_leases_of_a_gateway_that_gives_signs_hold_for_ever(redis_server):
    async def steps(left, right):
        o = opening(now=0.0)
        await left.open_call(o)
        for _ in range(5):
            await age_leases(left, 100.0)
            for table in (left, right):
                assert list(await table.expire(0.0, 10.0)) == []
        assert (await left.close_call(closing(o, service_s=1.0))).service_s == 1.0

    run(redis_server, steps, gateways=2)


@pytest.mark.parametrize("off_s", [180.0, -180.0])
def test_a_gateway_whose_clock_is_off_does_not_abort_live_calls(redis_server, off_s):
    async def steps(right, off):
        now = time.time()
        theirs, mine = opening(now=now), opening(now=now + off_s, replica="r1")
        await right.open_call(theirs)
        await off.open_call(mine)
        for _ in range(2):
            assert list(await off.expire(now + off_s, 1e9)) == []
            assert list(await right.expire(now, 1e9)) == []
        assert {t.call for t in (await right.get(KEY)).threads} == {theirs.call, mine.call}
        assert await right.count() == {"r0": 1, "r1": 1}
        for table, o in ((right, theirs), (off, mine)):
            assert (await table.close_call(closing(o, now=now, service_s=1.0))) is not None
        assert (await right.get(KEY)).service_s == 2.0

    run(redis_server, steps, gateways=2)


def test_a_lease_that_is_renewed_while_others_look_is_not_closed(redis_server):
    async def steps(left, right):
        o = opening()
        await left.open_call(o)
        await age_leases(left, 1000.0)
        lapsed = right._store.lapsed

        async def then_renewed(*about):
            found = await lapsed(*about)
            await left.expire(0.0, 1e9)
            return found

        right._store.lapsed = then_renewed
        # The other gateway's look finds the lease lapsed, and its closing finds it renewed.
        left._store.lapsed = lambda *_: asyncio.sleep(0, [])
        assert list(await right.expire(0.0, 1e9)) == []
        assert (await left.close_call(closing(o, service_s=1.0))).service_s == 1.0

    run(redis_server, steps, gateways=2)


def test_what_is_in_flight_is_counted_when_asked_without_traffic(redis_server):
    async def steps(left, right):
        calls = [opening(replica="r0") for _ in range(6)]
        for o in calls:
            await right.open_call(o)
        assert await left.count() == {"r0": 6}
        for o in calls:
            await right.close_call(closing(o))
        # The left gateway has no call of its own that would tell it.
        assert left.in_flight() == {"r0": 6}
        assert await left.count() == left.in_flight() == {}

    run(redis_server, steps, gateways=2)


@pytest.mark.parametrize("seed", range(4))
def test_opened_less_closed_is_in_flight_for_all_gateways_whatever_is_deleted(redis_server, seed):
    async def steps(*tables):
        rng, open_calls = Random(seed), []
        keys = tables[0]._store.keys
        actions = ("open", "open", "open", "close", "close", "row", "sums", "expire")
        for _ in range(150):
            table, action, key = rng.choice(tables), rng.choice(actions), rng.choice(KEYS)
            if action == "open":
                o = opening(key, replica=f"r{rng.randrange(3)}", ephemeral=key == KEYS[3])
                # Calls may be closed through any gateway; their leases are renewed by one.
                opened = await table.open_call(o)
                open_calls.append(o)
                assert opened.in_flight == counted(open_calls)
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
def test_lost_counts_and_leases_are_made_again(redis_server, lost):
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
        # The right one dies.
        await age_leases(left, 1000.0)
        await left.expire(0.0, 1e9)
        assert await left.count() == {"r0": 1}
        third = opening(replica="r2")
        assert (await left.open_call(third)).in_flight == {"r0": 1, "r2": 1}
        for o in (mine, third):
            await left.close_call(closing(o))
        assert await left.count() == {}

    run(redis_server, steps, gateways=2)


def test_a_dead_gateways_calls_are_closed_although_their_leases_were_lost(redis_server):
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


def test_rows_of_an_earlier_release_and_of_other_replicas_do_no_harm(redis_server):
    async def steps(table):
        store = table._store
        # Replicas were named by their place in the list, and counts stood by themselves.
        await store.redis.hset(store.keys.in_flight, mapping={"r0": 3, "r7": 1})
        gone = opening(replica="r7", eligible=frozenset({"r7"}), sticky=True)
        await table.open_call(gone)
        assert await table.count() == {"r7": 1}
        await table.close_call(closing(gone))
        assert (await table.get(KEY)).home == "r7"
        now_named = "10.0.0.1:8001"
        o = opening(replica=now_named, eligible=frozenset({now_named}), sticky=True, now=3.0)
        opened = await table.open_call(o)
        assert (opened.replica, opened.program.home) == (now_named, now_named)
        assert opened.in_flight == {now_named: 1}
        await table.close_call(closing(o, now=4.0))

    run(redis_server, steps)
