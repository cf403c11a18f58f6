"""Process tables on Redis: several gateways, lost replies and server outages."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest
import redis
from support.redis_rows import age_leases
from support.redis_server import RedisServer
from support.redis_table import run
from support.table import KEY, Twin, closing, opening
from support.waiting import DEADLINE_S
from weft_gateway.model import ProgramKey
from weft_gateway.programs.redis import RedisTable
from weft_gateway.programs.table import TableUnavailable


@contextmanager
def own_server(folder: Path) -> Iterator[RedisServer]:
    """Start a server that the test may stop."""
    server = RedisServer(folder)
    try:
        yield server
    finally:
        server.kill()


def test_two_gateways_agree_on_one_home_for_concurrent_calls(redis_server):
    async def steps(left, right):
        tables = (left, right)
        calls = [opening(replica=f"r{i % 2}", sticky=True) for i in range(200)]
        opened = await asyncio.gather(*[tables[i % 2].open_call(o) for i, o in enumerate(calls)])
        assert len({answer.replica for answer in opened}) == 1
        assert sum(answer.created for answer in opened) == 1
        assert len((await left.get(KEY)).threads) == 200
        await asyncio.gather(
            *[tables[i // 2 % 2].close_call(closing(o, service_s=0.5)) for i, o in enumerate(calls)]
        )
        assert (await right.get(KEY)).service_s == 100.0

    run(redis_server, steps, gateways=2)


def test_each_gateway_sees_the_calls_of_the_other(redis_server):
    async def steps(left, right):
        await left.open_call(opening(replica="r0"))
        o = opening(replica="r1")
        await right.open_call(o)
        assert right.in_flight() == {"r0": 1, "r1": 1}
        assert left.in_flight() == {"r0": 1}  # of its last round trip
        await right.close_call(closing(o))
        assert right.in_flight() == {"r0": 1}

    run(redis_server, steps, gateways=2)


def test_calls_that_open_at_the_same_time_see_each_other(redis_server):
    async def steps(table):
        first = opening(replica="r0", costs={"r0": 7, "r1": 9})
        second = opening(replica="r1", costs={"r0": 7, "r1": 9})
        opened = [asyncio.create_task(table.open_call(one)) for one in (first, first, second)]
        opened[1].cancel()
        await asyncio.sleep(0)
        assert table.in_flight() == {"r0": 1, "r1": 1}
        assert table.work() == {"r0": 7, "r1": 9}
        await asyncio.gather(*opened, return_exceptions=True)
        assert table.in_flight() == {"r0": 1, "r1": 1}
        assert table.work() == {"r0": 7, "r1": 9}
        for one in (first, second):
            await table.close_call(closing(one))
        assert set(table.in_flight().values()) | set(table.work().values()) <= {0}

    run(redis_server, steps)


def test_an_older_reply_does_not_replace_newer_counts(redis_server, monkeypatch):
    async def steps(table):
        count, held = table._store._count, asyncio.Event()

        async def late(keys):
            reply = await count(keys)
            answered.set()
            await held.wait()
            return reply

        answered = asyncio.Event()
        monkeypatch.setattr(table._store, "_count", late)
        counting = asyncio.create_task(table.count())
        await answered.wait()
        await table.open_call(opening(replica="r0", costs={"r0": 7}))
        held.set()
        assert await counting == table.in_flight() == {"r0": 1}
        assert table.work() == {"r0": 7}

    run(redis_server, steps)


@pytest.mark.parametrize("seed", range(2))
def test_calls_through_several_gateways_give_the_same_answers_as_one_table(redis_server, seed):
    async def steps(*tables):
        rng, reference = Random(seed), Twin()
        actions = ("open", "open", "close", "close", "start", "end", "expire")
        for _ in range(120):
            await reference.step(
                rng.choice(tables), rng.choice(actions), rng.randrange(4), rng.random() < 0.5,
                rng.uniform(0, 10),
            )  # fmt: skip
            assert list(await tables[0].check()) == []

    # Leases never expire here, because some gateways do not renew them.
    run(redis_server, steps, gateways=3, lease_s=1e9)


def test_tables_with_different_prefixes_are_separate(redis_server):
    async def steps(table):
        other = RedisTable(redis_server.url, "another")
        await table.open_call(opening())
        assert await other.get(KEY) is None
        assert list(await other.check()) == []
        await other.aclose()

    run(redis_server, steps)


def test_many_idle_programs_expire_among_many_busy_ones(redis_server):
    async def steps(table):
        busy = [opening(ProgramKey("t", f"busy{i:04}"), now=1.0) for i in range(510)]
        await asyncio.gather(*[table.open_call(o) for o in busy])
        idle = [ProgramKey("t", f"idle{i:04}") for i in range(1010)]
        await asyncio.gather(*[table.start(key, 2.0) for key in idle])
        assert sorted(each.key for each in await table.expire(50.0, 10.0)) == idle
        assert len(await table.programs("t", 2000)) == len(busy)

    run(redis_server, steps)


def test_no_call_starves_when_calls_exceed_connections(redis_server):
    async def steps(table):
        workers, finished, longest = 96, 0, 0

        async def one() -> None:
            nonlocal finished, longest
            for _ in range(8):
                o, before = opening(), finished
                await table.open_call(o)
                finished += 1
                longest = max(longest, finished - before)
                await table.close_call(closing(o))

        await asyncio.gather(*[one() for _ in range(workers)])
        # Calls are served in order: at most one turn of each other worker plus the calls in flight.
        assert longest <= 2 * workers

    run(redis_server, steps)


def test_a_cancelled_call_does_not_shift_the_replies_of_others(redis_server):
    async def steps(table):
        rng = Random(1)
        for round_ in range(40):
            keys = [ProgramKey("t", f"{round_}-{i}") for i in range(8)]
            tasks = [asyncio.create_task(table.open_call(opening(key, now=1.0))) for key in keys]
            for _ in range(rng.randrange(12)):
                await asyncio.sleep(0)
            for task in rng.sample(tasks, 4):
                task.cancel()
            answers = await asyncio.gather(*tasks, return_exceptions=True)
            for key, answer in zip(keys, answers, strict=True):
                assert isinstance(answer, asyncio.CancelledError) or answer.program.key == key
                if not isinstance(answer, asyncio.CancelledError):
                    assert [t.call for t in answer.program.threads] == [
                        t.call for t in (await table.get(key)).threads
                    ]

    run(redis_server, steps)


def test_scripts_are_sent_again_after_a_script_flush(redis_server):
    async def steps(table):
        o = opening()
        await table.open_call(o)
        with redis.Redis.from_url(redis_server.url) as client:
            client.script_flush()
        assert (await table.close_call(closing(o, service_s=1.0))).service_s == 1.0

    run(redis_server, steps)


def test_the_integrity_check_reports_each_kind_of_damage(redis_server):
    async def steps(table):
        await table.open_call(opening())
        base = table._store.keys.base
        row, spare = base + b"p:public/p", base + b"kept"
        with redis.Redis.from_url(redis_server.url) as client:
            for damage, word in (
                (lambda: client.hset(row, "calls", 7), "opened"),
                (lambda: client.hset(row, "service", "-1"), "service_s"),
                (lambda: client.delete(row), "without a row"),
                (lambda: client.delete(base + b"activity"), "missing from the activity"),
                (lambda: client.delete(base + b"in_flight"), "in flight"),
                (lambda: client.delete(base + b"calls"), "open calls"),
                (lambda: client.delete(base + b"leases"), "leases"),
                (lambda: client.delete(base + b"n:public"), "names"),
                (lambda: client.hincrby(base + b"totals", "created", 1), "created"),
            ):
                keys = [
                    row,
                    *(
                        base + k
                        for k in (
                            b"activity",
                            b"in_flight",
                            b"calls",
                            b"leases",
                            b"n:public",
                            b"totals",
                        )
                    ),
                ]
                for key in keys:
                    client.copy(key, spare + key)
                damage()
                assert any(word in fault for fault in await table.check()), word
                for key in keys:
                    client.delete(key)
                    client.rename(spare + key, key)

    run(redis_server, steps)


def test_the_integrity_check_finds_damage_and_nothing_else_while_calls_open_and_close(redis_server):
    async def steps(left, right):
        stop = False

        async def use(table, number: int) -> None:
            named, turn = ProgramKey("t", f"named{number}"), 0
            while not stop:
                turn += 1
                key = named if turn % 2 else ProgramKey("t", f"{number}-{turn}")
                o = opening(key, replica=f"r{turn % 3}", sticky=True, ephemeral=key is not named)
                await table.open_call(o)
                await table.close_call(closing(o))

        users = [asyncio.create_task(use((left, right)[n % 2], n)) for n in range(16)]
        for _ in range(12):
            assert list(await left.check()) == []
        with redis.Redis.from_url(redis_server.url) as client:
            client.zadd(left._store.keys.base + b"n:t", {"lost": 0})
            client.hincrby(left._store.keys.totals, "created", 1)
        found = list(await left.check())
        assert len(found) == 2
        assert any("list of names" in fault and "lost" in fault for fault in found)
        assert any("programs created" in fault for fault in found)
        with redis.Redis.from_url(redis_server.url) as client:
            client.zrem(left._store.keys.base + b"n:t", "lost")
            client.hincrby(left._store.keys.totals, "created", -1)
        stop = True
        await asyncio.gather(*users)

    run(redis_server, steps, gateways=2)


def test_a_deleted_row_does_not_stay_in_the_indexes(redis_server):
    async def steps(table):
        await table.start(KEY, 1.0)
        with redis.Redis.from_url(redis_server.url) as client:
            client.delete(table._store.keys.row(KEY))
        assert list(await table.expire(100.0, 10.0)) == []
        assert list(await table.programs("public", 9)) == []

    run(redis_server, steps)


def test_errors_name_an_unreachable_server_and_calls_succeed_after_its_return(tmp_path: Path):
    with own_server(tmp_path) as server:

        async def steps(table):
            o = opening()
            await table.open_call(o)
            server.kill()
            for attempt in (
                lambda: table.open_call(opening()),
                lambda: table.close_call(closing(o)),
                lambda: table.start(KEY, 1.0),
                lambda: table.end(KEY, 1.0),
                lambda: table.get(KEY),
                lambda: table.programs("public", 1),
                lambda: table.expire(1.0, 1.0),
                table.check,
                table.ping,
            ):
                with pytest.raises(TableUnavailable, match=str(server.port)):
                    await attempt()
            assert table.peek(KEY) is not None
            server.start()
            assert (await table.open_call(opening())).created

        run(server, steps)


def test_an_opening_whose_reply_is_lost_does_not_stay_open(tmp_path: Path):
    with own_server(tmp_path) as server:

        async def steps(table):
            first = opening(now=0.0)
            await table.open_call(first)  # now the server has the script
            await table.close_call(closing(first))
            server.pause()
            try:
                with pytest.raises(TableUnavailable):
                    await table.open_call(opening(now=0.0))
            finally:
                server.resume()
            # The server now runs the script, but the client has stopped waiting.
            deadline = time.monotonic() + DEADLINE_S
            while not (await table.get(KEY)).threads:
                assert time.monotonic() < deadline, "the server never ran the script"
            await age_leases(table, 1000.0)
            await table.expire(1000.0, 1e9)
            assert (await table.get(KEY)).threads == ()
            assert table.in_flight() == {}

        run(server, steps, timeout_s=1.0)


def test_a_connection_error_names_the_server_without_the_password(tmp_path: Path):
    with own_server(tmp_path) as server:

        async def steps(table):
            wrong = RedisTable(server.url.replace("//", "//user:secret@"), "gone")
            with pytest.raises(TableUnavailable, match=str(server.port)) as raised:
                await wrong.ping()
            assert "secret" not in str(raised.value)
            await wrong.aclose()

        run(server, steps)
