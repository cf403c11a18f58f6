"""The resilient table during an outage of Redis, and the contents of Redis afterwards."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import count
from random import Random

import pytest
from support.redis_proxy import Line, RedisProxy
from support.redis_rows import age_leases
from support.redis_server import RedisServer
from support.table import KEY, KEYS, closing, opening
from support.waiting import back
from weft_gateway.model import ProgramKey
from weft_gateway.programs import resilient
from weft_gateway.programs.redis import RedisTable
from weft_gateway.programs.resilient import ResilientTable

_prefixes = (f"away{number}" for number in count())
_PROBE_S = 0.005


def run_through_proxy(
    server: RedisServer, steps: Callable[..., Awaitable[None]], gateways: int = 1
) -> None:
    """Run the steps with a proxy and gateways that use it, then check the table's integrity."""

    async def main() -> None:
        prefix = next(_prefixes)
        async with RedisProxy(server.port) as proxy:
            tables = [
                ResilientTable(RedisTable(proxy.url, prefix, timeout_s=20.0), _PROBE_S)
                for _ in range(gateways)
            ]
            direct = RedisTable(server.url, prefix, timeout_s=20.0)
            try:
                for table in tables:
                    await table.ping()
                await steps(proxy, direct, *tables)
                await back(*tables)
                assert list(await direct.check()) == []
            finally:
                proxy.set(Line.OPEN)
                for table in (*tables, direct):
                    await table.aclose()

    asyncio.run(main())


@pytest.mark.parametrize("how", [Line.CUT, Line.MUTE])
def test_calls_continue_during_an_outage_and_are_counted_once(redis_server, how):
    async def steps(proxy, direct, table):
        before = opening(costs={"r0": 7})
        assert not (await table.open_call(before)).local
        proxy.set(how)
        during = opening(replica="r1", costs={"r0": 2, "r1": 11})
        opened = await table.open_call(during)
        assert (opened.local, opened.created, opened.replica) == (True, False, "r1")
        assert table.local
        assert table.in_flight() == {"r0": 1, "r1": 1}
        assert table.work() == {"r0": 7, "r1": 11}
        assert (await table.close_call(closing(before, service_s=2.0))).service_s == 2.0
        assert (await table.close_call(closing(during, service_s=3.0))).service_s == 5.0
        still = opening(costs={"r0": 5})
        await table.open_call(still)
        proxy.set(Line.OPEN)
        await back(table)
        # Calls that begin and end during the outage are not added. If only replies are lost, Redis
        # has seen the opening of `during`.
        known = how is Line.MUTE
        program = await direct.get(KEY)
        totals = (program.service_s, program.calls, program.calls_closed)
        assert totals == ((5.0, 3, 2) if known else (2.0, 2, 1))
        assert [t.call for t in program.threads] == [still.call]
        assert table.in_flight() == {"r0": 1}
        assert table.work() == {"r0": 5}
        assert (await table.close_call(closing(still, service_s=1.0))).service_s == (
            6.0 if known else 3.0
        )
        assert table.work() == {}
        assert table.peek(KEY) == await direct.get(KEY)

    run_through_proxy(redis_server, steps)


def test_each_kind_of_change_is_applied_once_when_its_reply_is_lost(redis_server):
    async def steps(proxy, direct, table):
        async def lost(change: Awaitable[object]) -> None:
            proxy.set(Line.MUTE)
            await change
            assert table.local
            proxy.set(Line.OPEN)
            await back(table)

        o = opening()
        await lost(table.open_call(o))
        assert (await direct.get(KEY)).calls == 1
        await lost(table.close_call(closing(o, service_s=2.0)))
        program = await direct.get(KEY)
        assert (program.calls_closed, program.service_s) == (1, 2.0)
        await lost(table.end(KEY, 3.0))
        assert await direct.get(KEY) is None
        await lost(table.start(KEY, 4.0))
        assert await direct.get(KEY) is not None
        assert await direct.counts() == (2, 1, 1)

    run_through_proxy(redis_server, steps)


def test_changes_by_another_gateway_during_an_outage_stay(redis_server):
    async def steps(proxy, direct, table):
        mine = opening(sticky=True, replica="r0")
        await table.open_call(mine)
        await table.close_call(closing(mine, service_s=1.0))
        proxy.set(Line.CUT)
        theirs = opening(now=5.0)
        await direct.open_call(theirs)
        await direct.close_call(closing(theirs, now=6.0, service_s=10.0))
        another = opening(sticky=True, replica="r1")
        # The local view has the program's home.
        assert (await table.open_call(another)).replica == "r0"
        await table.close_call(closing(another, service_s=100.0))
        proxy.set(Line.OPEN)
        await back(table)
        program = await direct.get(KEY)
        assert (program.service_s, program.calls, program.home) == (11.0, 2, "r0")

    run_through_proxy(redis_server, steps)


def test_gateways_agree_on_one_home_again_after_an_outage(redis_server):
    async def steps(proxy, direct, left, right):
        proxy.set(Line.CUT)
        calls = [opening(sticky=True, replica=name) for name in ("r0", "r1")]
        there = [
            (await table.open_call(o)).replica
            for table, o in zip((left, right), calls, strict=True)
        ]
        assert there == ["r0", "r1"]
        proxy.set(Line.OPEN)
        await back(left, right)
        for table, o in zip((left, right), calls, strict=True):
            await table.close_call(closing(o, service_s=1.0))
        placed = set()
        for table, name in ((left, "r0"), (right, "r1"), (left, "r1")):
            o = opening(sticky=True, replica=name)
            placed.add((await table.open_call(o)).replica)
            await table.close_call(closing(o))
        assert len(placed) == 1
        assert (await direct.counts()).created == 1

    run_through_proxy(redis_server, steps, gateways=2)


def test_ephemeral_and_ended_programs_are_removed_during_an_outage(redis_server):
    async def steps(proxy, direct, table):
        ephemeral_call, ended = opening(ProgramKey("t", "n"), ephemeral=True), opening()
        await table.open_call(ephemeral_call)
        await table.open_call(ended)
        proxy.set(Line.CUT)
        await table.close_call(closing(ephemeral_call))
        await table.end(KEY, 3.0)
        assert (await table.get(KEY)).ended
        await table.close_call(closing(ended))
        assert await table.get(KEY) is None
        other = opening(ProgramKey("t", "m"), ephemeral=True)
        await table.open_call(other)
        await table.close_call(closing(other))
        await table.start(ProgramKey("t", "s"), 4.0)
        assert [p.key.program for p in await table.programs("t", 9)] == ["s"]
        proxy.set(Line.OPEN)
        await back(table)
        assert await direct.counts() == (3, 2, 1)
        assert [p.key.program for p in await direct.programs("t", 9)] == ["s"]

    run_through_proxy(redis_server, steps)


def test_leases_that_expired_during_an_outage_do_not_close_open_calls(redis_server):
    async def steps(proxy, direct, table):
        now = time.time()
        o = opening(now=now - 1000)
        await table.open_call(o)
        proxy.set(Line.CUT)
        assert list(await table.expire(now, 1e9)) == []
        assert table.local
        proxy.set(Line.OPEN)
        await back(table)
        assert list(await table.expire(time.time(), 1e9)) == []
        assert (await table.close_call(closing(o, now=now, service_s=1.0))).service_s == 1.0

    run_through_proxy(redis_server, steps)


def test_deleted_rows_are_noticed(redis_server):
    async def steps(proxy, direct, table):
        o = opening()
        await table.open_call(o)
        await table.close_call(closing(o, service_s=4.0))
        for raw in await direct._store.every_key():
            await direct._store.redis.delete(raw)
        assert list(await table.expire(10.0, 1e9)) == []
        await back(table)
        assert await direct.get(KEY) is None
        assert (await table.open_call(opening(o.key))).created

    run_through_proxy(redis_server, steps)


def test_after_a_flush_the_counts_equal_the_open_calls_of_the_gateways(redis_server):
    async def steps(proxy, direct, left, right):
        calls = [(table, opening(replica=r)) for table in (left, right) for r in ("r0", "r1", "r1")]
        for table, o in calls:
            await table.open_call(o)
        for raw in await direct._store.every_key():
            await direct._store.redis.delete(raw)
        # One call is closed before a gateway notices the flush.
        table, o = calls.pop(0)
        await table.close_call(closing(o))
        for table in (left, right):
            await table.expire(10.0, 1e9)
            await back(table)
        assert await left.count() == await right.count() == {"r0": 1, "r1": 4}
        for table, o in calls:
            await table.close_call(closing(o, service_s=1.0))
        assert await left.count() == await direct.count() == {}

    run_through_proxy(redis_server, steps, gateways=2)


def test_no_call_is_lost_or_counted_twice_with_random_outages(redis_server):
    """The count in Redis equals the open calls after any sequence of openings, closings and
    outages.
    """
    for seed in range(8):

        async def steps(proxy, direct, table, seed=seed):
            random, calls, closed = Random(seed), [], 0
            for _ in range(60):
                what = random.choice(["open", "open", "close", "end", "cut", "mute", "back"])
                if what == "open":
                    o = opening(random.choice(KEYS), replica=f"r{random.randrange(2)}")
                    calls.append(replace(o, candidate=(await table.open_call(o)).replica))
                elif what == "close" and calls:
                    o = calls.pop(random.randrange(len(calls)))
                    await table.close_call(closing(o, service_s=1.0))
                    closed += 1
                elif what == "end":
                    await table.end(random.choice(KEYS), 5.0)
                elif what in ("cut", "mute"):
                    proxy.set(Line(what))
                elif what == "back":
                    proxy.set(Line.OPEN)
                    await back(table)
                    assert list(await direct.check()) == []
                    assert await direct.count() == Counter(o.candidate for o in calls)
            proxy.set(Line.OPEN)
            await back(table)
            for o in calls:
                await table.close_call(closing(o))
            await back(table)
            assert await direct.count() == {}
            found = [p for key in KEYS if (p := await direct.get(key))]
            assert all(p.calls == p.calls_closed for p in found)
            assert sum(p.service_s for p in found) <= closed

        run_through_proxy(redis_server, steps)


def test_a_call_whose_closing_was_dropped_is_closed_by_its_lease(redis_server, monkeypatch):
    monkeypatch.setattr(resilient, "_MAX_CHANGES", 2)

    async def steps(proxy, direct, table):
        calls = [opening(key, now=1.0) for key in KEYS]
        for o in calls:
            await table.open_call(o)
        proxy.set(Line.CUT)
        for o in calls:
            await table.close_call(closing(o))
        proxy.set(Line.OPEN)
        await back(table)
        assert sum((await direct.count()).values()) == 2
        await age_leases(direct, 1000.0)
        direct._grace_until_s = 0.0
        await table.expire(3.0, 1e9)
        await direct.expire(3.0, 1e9)
        assert await direct.count() == {}

    run_through_proxy(redis_server, steps)


def test_session_changes_during_an_outage_are_applied_afterwards(redis_server):
    async def steps(proxy, direct, table):
        other = ProgramKey("t", "other")
        await table.start(KEY, 1.0)
        proxy.set(Line.CUT)
        assert (await table.end(KEY, 2.0)) is not None
        await table.start(other, 3.0)
        proxy.set(Line.OPEN)
        await back(table)
        assert await direct.get(KEY) is None
        assert await direct.get(other) is not None

    run_through_proxy(redis_server, steps)


def test_an_unexpected_failure_of_writing_back_is_counted_and_repeated(redis_server, monkeypatch):
    failures = []
    real = RedisTable.refresh

    async def refresh(table: RedisTable) -> None:
        if not failures:
            raise RuntimeError("unexpected")
        await real(table)

    async def steps(proxy, direct, table):
        table._failed = lambda: failures.append(1)
        proxy.set(Line.CUT)
        o = opening()
        await table.open_call(o)
        monkeypatch.setattr(RedisTable, "refresh", refresh)
        proxy.set(Line.OPEN)
        await back(table)
        assert failures == [1]
        await table.close_call(closing(o))

    run_through_proxy(redis_server, steps)
