"""Handles of prefills, on every table and through several gateways."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count

import pytest
from support.redis_proxy import Line, RedisProxy
from support.redis_server import RedisServer
from support.table import closing, opening, scenario
from support.waiting import back
from weft_gateway.model import ProgramKey
from weft_gateway.programs.handles import HandleStore, has_handles, new_id
from weft_gateway.programs.redis import RedisTable
from weft_gateway.programs.resilient import ResilientTable
from weft_gateway.programs.table import TableUnavailable

_prefixes = (f"handles{number}" for number in count())
KEY = ProgramKey("t", "a\nprogram/日")
TEXTS = {"state": "running", "prefix": "日\n"}


@pytest.fixture
def check(make_table: Callable[..., object]) -> Callable[..., None]:
    """`check(steps)`: run the steps with a store on an empty table."""

    def run(steps: Callable[..., Awaitable[None]]) -> None:
        scenario(make_table, lambda table: steps(HandleStore(table), table))

    return run


def test_ids_are_unique_and_name_their_program(check):
    async def steps(store, table):
        first, second = new_id(KEY.program), new_id(KEY.program)
        assert first != second
        await store.begin(KEY, first, TEXTS, 1.0, 11.0)
        assert await store.find("t", second, 1.0) is None
        for wrong in ("", "pf_", "x" * 40, "日" * 40, first[:-2], "tags"):
            assert await store.find("t", wrong, 1.0) is None

    check(steps)


def test_a_handle_belongs_to_its_tenant_and_expires(check):
    async def steps(store, table):
        handle = new_id(KEY.program)
        await store.begin(KEY, handle, TEXTS, 1.0, 11.0)
        assert await store.find("t", handle, 10.9) == TEXTS
        assert await store.find("t", handle, 11.0) is None
        assert await store.find("u", handle, 1.0) is None
        assert await store.of_program(ProgramKey("u", KEY.program), 1.0) == []

    check(steps)


def test_texts_change_while_the_handle_exists(check):
    async def steps(store, table):
        handle = new_id(KEY.program)
        await store.begin(KEY, handle, TEXTS, 1.0, 11.0)
        assert await store.update(KEY, handle, {"state": "done", "report": "{}"})
        now = {"state": "done", "prefix": "日\n", "report": "{}"}
        assert await store.find("t", handle, 2.0) == now
        await store.drop(KEY, handle)
        assert not await store.update(KEY, handle, {"state": "failed"})
        assert await store.find("t", handle, 2.0) is None

    check(steps)


def test_the_handles_of_a_program_are_found_together(check):
    async def steps(store, table):
        a, b, c = new_id(KEY.program), new_id(KEY.program), new_id("q")
        for handle, key, end in ((b, KEY, 9.0), (a, KEY, 7.0), (c, ProgramKey("t", "q"), 9.0)):
            await store.begin(key, handle, {"name": handle}, 1.0, end)
        program = await table.get(KEY)
        assert [has_handles(program, now) for now in (8.9, 9.0)] == [True, False]
        assert [texts["name"] for texts in await store.of_program(KEY, 2.0)] == [a, b]
        assert [texts["name"] for texts in await store.of_program(KEY, 7.0)] == [b]
        await store.drop(KEY, b)
        assert await store.of_program(KEY, 7.0) == []

    check(steps)


def test_a_drop_reports_whether_the_handle_existed(check):
    async def steps(store, table):
        first, second = new_id(KEY.program), new_id(KEY.program)
        await store.begin(KEY, first, TEXTS, 1.0, 11.0)
        assert await store.drop(KEY, first)
        assert not await store.drop(KEY, first)
        # Also after its expiry, so that its gateway knows that no turn has used it.
        await store.begin(KEY, second, TEXTS, 1.0, 2.0)
        assert await store.find("t", second, 3.0) is None
        assert await store.drop(KEY, second)

    check(steps)


def test_a_concurrent_update_does_not_restore_a_dropped_handle(check):
    async def steps(store, table):
        for _ in range(20):
            handle = new_id(KEY.program)
            await store.begin(KEY, handle, TEXTS, 1.0, 11.0)
            done = {"state": "done"}
            await asyncio.gather(store.update(KEY, handle, done), store.drop(KEY, handle))
            assert await store.find("t", handle, 2.0) is None

    check(steps)


def test_a_handle_ends_with_its_program_and_does_not_begin_it_again(check):
    async def steps(store, table):
        handle, o = new_id(KEY.program), opening(KEY)
        await table.open_call(o)
        await store.begin(KEY, handle, TEXTS, 1.0, 11.0)
        await table.end(KEY, 2.0)
        assert not await store.update(KEY, handle, {"state": "done"})
        assert await store.find("t", handle, 2.0) is None
        assert not await store.drop(KEY, handle)
        await table.close_call(closing(o))
        assert await table.get(KEY) is None

    check(steps)


def apart(server: RedisServer, steps: Callable[..., Awaitable[None]]) -> None:
    """Run the steps with a proxy, the table of the gateway behind it, and the stores of that
    gateway and of a second one."""

    async def main() -> None:
        prefix = next(_prefixes)
        async with RedisProxy(server.port) as proxy:
            tables = [
                ResilientTable(RedisTable(url, prefix, timeout_s=5.0), 0.005)
                for url in (proxy.url, server.url)
            ]
            try:
                for table in tables:
                    await table.ping()
                await steps(proxy, tables[0], *[HandleStore(table) for table in tables])
            finally:
                proxy.set(Line.OPEN)
                for table in tables:
                    await table.aclose()

    asyncio.run(main())


def test_another_gateway_changes_and_uses_up_a_handle(redis_server):
    async def steps(proxy, table, left, right):
        handle = new_id(KEY.program)
        await left.begin(KEY, handle, TEXTS, 1.0, 11.0)
        assert await right.find("t", handle, 2.0) == TEXTS
        await right.update(KEY, handle, {"state": "taken"})
        assert (await left.find("t", handle, 2.0))["state"] == "taken"
        assert await right.drop(KEY, handle)
        assert await left.find("t", handle, 2.0) is None
        assert await left.of_program(KEY, 2.0) == []
        assert not await left.drop(KEY, handle)

    apart(redis_server, steps)


def test_in_local_mode_a_gateway_uses_the_handles_that_it_knows(redis_server):
    async def steps(proxy, table, left, right):
        known, other, dropped, kept = (new_id(KEY.program) for _ in range(4))
        await left.begin(KEY, known, TEXTS, 1.0, 11.0)
        await right.begin(KEY, other, TEXTS, 1.0, 11.0)
        proxy.set(Line.CUT)
        await left.begin(KEY, dropped, TEXTS, 1.0, 12.0)
        assert table.local
        await left.update(KEY, known, {"state": "done"})
        assert (await left.find("t", known, 2.0))["state"] == "done"
        with pytest.raises(TableUnavailable):
            await left.find("t", other, 2.0)
        assert len(await left.of_program(KEY, 2.0)) == 2
        assert await left.drop(KEY, dropped)
        await left.begin(KEY, kept, TEXTS, 1.0, 12.0)
        assert (await right.find("t", known, 2.0))["state"] == "running"
        proxy.set(Line.OPEN)
        await back(table)
        assert (await right.find("t", known, 2.0))["state"] == "done"
        assert await right.find("t", dropped, 2.0) is None
        assert len(await right.of_program(KEY, 2.0)) == 3
        assert await left.find("t", other, 2.0) is not None

    apart(redis_server, steps)
