"""The table on Redis while Redis is away, and what is in it afterwards."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.redis_proxy import Line, RedisProxy
from support.redis_server import RedisServer
from support.table import KEY, KEYS, Twin, closing, opening, same
from support.waiting import back
from weft_gateway.model import ProgramKey
from weft_gateway.programs.redis import RedisTable
from weft_gateway.programs.resilient import ResilientTable

_prefixes = (f"away{number}" for number in count())
_PROBE_S = 0.005


def away(
    server: RedisServer, steps: Callable[..., Awaitable[None]], gateways: int = 1, **options: int
) -> None:
    """Run the steps with a line and that many gateways on it, `others` of them on one of their
    own. The table's integrity must hold afterwards."""

    async def main() -> None:
        prefix = next(_prefixes)
        async with RedisProxy(server.port) as line:
            tables = [
                ResilientTable(RedisTable(line.url, prefix, timeout_s=20.0), _PROBE_S, **options)
                for _ in range(gateways)
            ]
            direct = RedisTable(server.url, prefix, timeout_s=20.0)
            try:
                for table in tables:
                    await table.ping()
                await steps(line, direct, *tables)
                await back(*tables)
                assert list(await direct.check()) == []
            finally:
                line.set(Line.OPEN)
                for table in (*tables, direct):
                    await table.aclose()

    asyncio.run(main())


@pytest.mark.parametrize("how", [Line.CUT, Line.MUTE])
def test_calls_go_on_and_are_counted_once(redis_server, how):
    async def steps(line, direct, table):
        before = opening()
        assert not (await table.open_call(before)).local
        line.set(how)
        during = opening(replica="r1")
        opened = await table.open_call(during)
        assert (opened.local, opened.created, opened.replica) == (True, False, "r1")
        assert table.local
        assert opened.in_flight == {"r0": 1, "r1": 1}
        assert (await table.close_call(closing(before, service_s=2.0))).service_s == 2.0
        assert (await table.close_call(closing(during, service_s=3.0))).service_s == 5.0
        still = opening()
        await table.open_call(still)
        line.set(Line.OPEN)
        await back(table)
        program = await direct.get(KEY)
        assert (program.service_s, program.calls, program.calls_closed) == (5.0, 3, 2)
        assert [t.call for t in program.threads] == [still.call]
        assert table.in_flight() == {"r0": 1}
        assert (await table.close_call(closing(still, service_s=1.0))).service_s == 6.0
        assert table.peek(KEY) == await direct.get(KEY)

    away(redis_server, steps)


def test_the_answer_to_each_kind_of_change_may_be_lost(redis_server):
    async def steps(line, direct, table):
        async def lost(change: Awaitable[object]) -> None:
            line.set(Line.MUTE)
            await change
            assert table.local
            line.set(Line.OPEN)
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
        assert await direct.census() == (2, 1, 1)

    away(redis_server, steps)


def test_making_up_may_break_off_anywhere_and_begin_again(redis_server):
    async def steps(line, direct, table):
        line.set(Line.CUT)
        for number in range(700):
            o = opening(KEYS[number % 4])
            await table.open_call(o)
            await table.close_call(closing(o, service_s=1.0))
            if number % 100 == 99:
                await table.end(KEYS[0], 5.0)
        for _ in range(3):
            # Some of it arrives, and nobody is told.
            line.set(Line.MUTE)
            await asyncio.sleep(5 * _PROBE_S)
            line.set(Line.CUT)
        line.set(Line.OPEN)
        await back(table)
        found = [await direct.get(key) for key in KEYS]
        assert [p.service_s if p else None for p in found] == [None, 175.0, 175.0, 175.0]
        created, ended, alive = await direct.census()
        assert (created, ended, alive) == (10, 7, 3)

    away(redis_server, steps)


def test_an_opening_that_comes_after_its_replay_changes_nothing(redis_server):
    async def steps(line, direct, table):
        o = opening()
        line.set(Line.CUT)
        await table.open_call(o)
        await table.close_call(closing(o, service_s=1.0))
        line.set(Line.OPEN)
        await back(table)
        # It had waited in the server's socket.
        with pytest.raises(ValueError, match="open already"):
            await direct.open_call(o)
        program = await direct.get(KEY)
        assert (program.calls, program.threads) == (1, ())

    away(redis_server, steps)


def test_what_another_gateway_did_meanwhile_stays(redis_server):
    async def steps(line, direct, table):
        mine = opening(sticky=True, replica="r0")
        await table.open_call(mine)
        await table.close_call(closing(mine, service_s=1.0))
        line.set(Line.CUT)
        theirs = opening(now=5.0)
        await direct.open_call(theirs)
        await direct.close_call(closing(theirs, now=6.0, service_s=10.0))
        another = opening(sticky=True, replica="r1")
        # The view remembers the program's home.
        assert (await table.open_call(another)).replica == "r0"
        await table.close_call(closing(another, service_s=100.0))
        line.set(Line.OPEN)
        await back(table)
        program = await direct.get(KEY)
        assert (program.service_s, program.calls, program.home) == (111.0, 3, "r0")

    away(redis_server, steps)


def test_gateways_that_decided_apart_agree_again(redis_server):
    async def steps(line, direct, left, right):
        line.set(Line.CUT)
        calls = [opening(sticky=True, replica=name) for name in ("r0", "r1")]
        there = [
            (await table.open_call(o)).replica
            for table, o in zip((left, right), calls, strict=True)
        ]
        assert there == ["r0", "r1"]
        line.set(Line.OPEN)
        await back(left, right)
        for table, o in zip((left, right), calls, strict=True):
            await table.close_call(closing(o, service_s=1.0))
        placed = set()
        for table, name in ((left, "r0"), (right, "r1"), (left, "r1")):
            o = opening(sticky=True, replica=name)
            placed.add((await table.open_call(o)).replica)
            await table.close_call(closing(o))
        assert len(placed) == 1
        assert (await direct.census()).created == 1

    away(redis_server, steps, gateways=2)


def test_nameless_and_ended_programs_go_as_they_would_have(redis_server):
    async def steps(line, direct, table):
        nameless, ended = opening(ProgramKey("t", "n"), ephemeral=True), opening()
        await table.open_call(nameless)
        await table.open_call(ended)
        line.set(Line.CUT)
        await table.close_call(closing(nameless))
        await table.end(KEY, 3.0)
        assert (await table.get(KEY)).ended
        await table.close_call(closing(ended))
        assert await table.get(KEY) is None
        other = opening(ProgramKey("t", "m"), ephemeral=True)
        await table.open_call(other)
        await table.close_call(closing(other))
        await table.start(ProgramKey("t", "s"), 4.0)
        assert [p.key.program for p in await table.programs("t", 9)] == ["s"]
        line.set(Line.OPEN)
        await back(table)
        assert await direct.census() == (4, 3, 1)
        assert [p.key.program for p in await direct.programs("t", 9)] == ["s"]

    away(redis_server, steps)


def test_a_journal_that_is_full_serves_on_without_counting(redis_server):
    async def steps(line, direct, table):
        before = opening()
        await table.open_call(before)
        line.set(Line.CUT)
        calls = [opening() for _ in range(5)]
        for o in calls:
            assert (await table.open_call(o)).local
        for o in (before, *calls):
            await table.close_call(closing(o, service_s=1.0))
        line.set(Line.OPEN)
        await back(table)
        program = await direct.get(KEY)
        assert (program.calls, program.calls_closed, program.service_s) == (4, 4, 4.0)

    away(redis_server, steps, max_events=3)


def test_leases_that_ran_out_meanwhile_are_not_taken_for_lost_calls(redis_server):
    async def steps(line, direct, table):
        now = time.time()
        o = opening(now=now - 1000)
        await table.open_call(o)
        line.set(Line.CUT)
        assert list(await table.expire(now, 1e9)) == []
        assert table.local
        line.set(Line.OPEN)
        await back(table)
        assert list(await table.expire(time.time(), 1e9)) == []
        assert (await table.close_call(closing(o, now=now, service_s=1.0))).service_s == 1.0

    away(redis_server, steps)


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(
            ["open", "open", "open", "close", "close", "start", "end", "cut", "mute", "back"]
        ),
        st.integers(0, 3),
        st.booleans(),
        st.floats(0, 10, allow_nan=False),
    ),
    max_size=40,
)


@given(ACTIONS)
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_with_outages_anywhere_it_answers_as_memory_does(redis_server, actions):
    async def steps(line, direct, table):
        twin = Twin()
        for name, *rest in actions:
            if name == "back":
                line.set(Line.OPEN)
                await back(table)
                assert list(await direct.check()) == []
            elif name in ("cut", "mute"):
                line.set(Line(name))
            else:
                await twin.step(table, name, *rest)
        while twin.open_calls:
            await twin.step(table, "close", 0, False, 1.0)
        line.set(Line.OPEN)
        await back(table)
        for key in KEYS:
            same(await direct.get(key), await twin.table.get(key))
        assert await direct.census() == await twin.table.census()
        assert table.in_flight() == {}

    away(redis_server, steps)


def test_rows_that_are_lost_without_a_sign_are_noticed(redis_server):
    async def steps(line, direct, table):
        o = opening()
        await table.open_call(o)
        await table.close_call(closing(o, service_s=4.0))
        for raw in await direct._store.every_key():
            await direct._store.redis.delete(raw)
        assert list(await table.expire(10.0, 1e9)) == []
        await back(table)
        program = await direct.get(KEY)
        assert (program.service_s, program.calls) == (4.0, 1)

    away(redis_server, steps)


def test_after_a_flush_what_is_in_flight_is_what_the_gateways_have_open(redis_server):
    async def steps(line, direct, left, right):
        calls = [(table, opening(replica=r)) for table in (left, right) for r in ("r0", "r1", "r1")]
        for table, o in calls:
            await table.open_call(o)
        for raw in await direct._store.every_key():
            await direct._store.redis.delete(raw)
        # One call is closed before anybody has noticed.
        table, o = calls.pop(0)
        await table.close_call(closing(o))
        for table in (left, right):
            await table.expire(10.0, 1e9)
            await back(table)
        assert await left.count() == await right.count() == {"r0": 1, "r1": 4}
        for table, o in calls:
            await table.close_call(closing(o, service_s=1.0))
        assert await left.count() == await direct.count() == {}

    away(redis_server, steps, gateways=2)


def test_gateways_give_back_what_they_know_in_any_order(redis_server):
    async def steps(line, direct, left, right):
        for table, service_s in ((left, 1.0), (right, 2.0)):
            o = opening()
            await table.open_call(o)
            await table.close_call(closing(o, service_s=service_s))
        kept = opening()
        await left.open_call(kept)
        for raw in await direct._store.every_key():
            await direct._store.redis.delete(raw)
        # A gateway that knows nothing of it calls first.
        first = opening()
        await direct.open_call(first)
        await direct.close_call(closing(first, service_s=10.0))
        for table in (right, left):
            await table.expire(10.0, 1e9)
            await back(table)
        program = await direct.get(KEY)
        assert program.service_s == 13.0
        assert (program.calls, program.calls_closed) == (4, 3)
        assert (await left.close_call(closing(kept, service_s=5.0))).service_s == 18.0

    away(redis_server, steps, gateways=2)
