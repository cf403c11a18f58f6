"""Counts of calls in flight stay exact when an operator deletes rows, on every table."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random
from typing import Any

import pytest
from redis.asyncio import Redis
from support.redis_rows import store_of
from support.table import KEYS, closing, opening, scenario
from weft_gateway.programs.memory import MemoryTable


async def delete_row(table: Any, key: Any) -> None:
    """Delete a program's row in Redis, as an operator would. A table in memory stays unchanged."""
    if not isinstance(table, MemoryTable):
        store = store_of(table)
        port = store.redis.connection_pool.connection_kwargs["port"]
        async with Redis(port=port) as operator:
            await operator.delete(store.keys.row(key))


def counts(calls: list[Any]) -> dict[str, int]:
    found: dict[str, int] = {}
    for o in calls:
        found[o.candidate] = found.get(o.candidate, 0) + 1
    return found


def costs(calls: list[Any]) -> dict[str, int]:
    found = Counter[str]()
    for o in calls:
        found[o.candidate] += o.costs.get(o.candidate, 0)
    return +found


@pytest.mark.parametrize("seed", range(3))
def test_calls_in_flight_always_equal_opened_minus_closed(make_table, seed):
    async def steps(table):
        rng, open_calls, now = Random(seed), [], 1.0
        for _ in range(150):
            now += 1.0
            action = rng.choice(("open", "open", "close", "close", "delete"))
            key = rng.choice(KEYS)
            if action == "open":
                o = opening(
                    key, replica=f"r{rng.randrange(3)}", now=now, ephemeral=key == KEYS[3],
                    costs={f"r{n}": rng.randrange(100) for n in range(2)},
                )  # fmt: skip
                await table.open_call(o)
                assert table.in_flight() == counts([*open_calls, o])
                open_calls.append(o)
            elif action == "close" and open_calls:
                o = open_calls.pop(rng.randrange(len(open_calls)))
                await table.close_call(closing(o, now=now, service_s=1.0))
            elif action == "delete":
                await delete_row(table, key)
            assert await table.count() == table.in_flight() == counts(open_calls)
            assert table.work() == costs(open_calls)
            created, ended, alive = await table.counts()
            assert created - ended == alive
        for o in open_calls:
            await table.close_call(closing(o, now=now, service_s=1.0))
        assert await table.count() == table.work() == {}
        await table.expire(now + 100.0, 10.0)
        assert (await table.counts()).alive == 0

    scenario(make_table, steps)


@pytest.mark.parametrize("then", ["call", "start", "expire"])
def test_a_deleted_row_leaves_no_home(make_table, then):
    async def steps(table):
        memory = isinstance(table, MemoryTable)
        for key in KEYS[:2]:
            await table.open_call(o := opening(key, sticky=True))
            await table.close_call(closing(o))
        assert await table.homes() == {"r0": 2}
        await delete_row(table, KEYS[0])
        if then == "call":
            await table.open_call(o := opening(KEYS[0], now=3.0))
            await table.close_call(closing(o, now=3.0))
        elif then == "start":
            await table.start(KEYS[0], 3.0)
        else:
            await table.expire(100.0, 10.0)
        left = 0 if then == "expire" else 1 + memory
        assert await table.homes() == ({"r0": left} if left else {})
        await table.end(KEYS[0], 4.0)
        await table.end(KEYS[1], 4.0)
        assert await table.homes() == {}

    scenario(make_table, steps)


def test_a_program_whose_row_was_deleted_is_created_again_while_its_calls_are_open(make_table):
    async def steps(table):
        key = KEYS[0]
        lost, kept = opening(key), opening(key, replica="r1", now=3.0)
        await table.open_call(lost)
        await delete_row(table, key)
        opened = await table.open_call(kept)
        memory = isinstance(table, MemoryTable)
        assert (opened.program.calls, opened.created) == ((2, False) if memory else (1, True))
        assert table.in_flight() == {"r0": 1, "r1": 1}
        closed = await table.close_call(closing(lost, now=4.0, service_s=2.0))
        assert (closed is None) is not memory
        assert await table.count() == {"r1": 1}
        assert await table.close_call(closing(lost, now=4.0)) is None
        assert await table.count() == {"r1": 1}
        await table.close_call(closing(kept, now=5.0, service_s=1.0))
        assert await table.count() == {}

    scenario(make_table, steps)


def test_concurrent_deletions_and_closings_leave_no_call_in_flight(make_table):
    async def steps(table):
        calls = [opening(KEYS[n % 4], replica=f"r{n % 3}") for n in range(60)]
        await asyncio.gather(*[table.open_call(o) for o in calls])
        assert await table.count() == counts(calls)
        closings = [table.close_call(closing(o)) for o in calls]
        await asyncio.gather(
            *closings[:30], *[delete_row(table, key) for key in KEYS], *closings[30:]
        )
        assert await table.count() == {}
        await table.expire(100.0, 10.0)

    scenario(make_table, steps)
