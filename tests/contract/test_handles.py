"""Handles of prefills: one contract in memory and on Redis, and several gateways."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.redis_proxy import Line, RedisProxy
from support.redis_server import RedisServer
from weft_gateway.model import ProgramKey
from weft_gateway.programs.handles import MemoryHandles
from weft_gateway.programs.redis_handles import RedisHandles
from weft_gateway.programs.redis_link import RedisLink
from weft_gateway.programs.table import TableUnavailable

_prefixes = (f"handles{number}" for number in count())
KEY = ProgramKey("t", "a\nprogram/日")
TEXTS = {"state": "running", "prefix": "日\n"}


@pytest.fixture(params=["memory", "redis"])
def check(request: pytest.FixtureRequest) -> Callable[..., None]:
    """`check(steps, **limits)`: run the steps on an empty store."""
    memory = request.param == "memory"
    server = None if memory else request.getfixturevalue("redis_server")

    def run(steps: Callable[..., Awaitable[None]], **limits: int) -> None:
        async def main() -> None:
            if server is None:
                await steps(MemoryHandles(**limits))
                return
            link = RedisLink(server.url, next(_prefixes), 20.0)
            try:
                await steps(RedisHandles(link, **limits))
            finally:
                await link.aclose()

        asyncio.run(main())

    return run


def test_a_handle_is_its_tenants_and_ends_with_its_time(check):
    async def steps(store):
        assert await store.begin(KEY, "pf_1", TEXTS, 1.0, 11.0)
        assert dict(await store.find("t", "pf_1", 10.9)) == TEXTS
        assert await store.find("t", "pf_1", 11.0) is None
        assert await store.find("u", "pf_1", 1.0) is None
        assert await store.find("t", "pf_2", 1.0) is None
        assert await store.of_program(ProgramKey("u", KEY.program), 1.0) == []
        assert len(store) == 1

    check(steps)


def test_texts_change_while_the_handle_is_there(check):
    async def steps(store):
        await store.begin(KEY, "pf_1", TEXTS, 1.0, 11.0)
        assert await store.update(KEY, "pf_1", {"state": "done", "report": "{}"})
        now = {"state": "done", "prefix": "日\n", "report": "{}"}
        assert dict(await store.find("t", "pf_1", 2.0)) == now
        await store.drop(KEY, "pf_1")
        assert not await store.update(KEY, "pf_1", {"state": "failed"})
        assert await store.find("t", "pf_1", 2.0) is None

    check(steps)


def test_a_programs_handles_are_found_together(check):
    async def steps(store):
        for name, key, end in (("b", KEY, 9.0), ("a", KEY, 7.0), ("c", ProgramKey("t", "q"), 9.0)):
            await store.begin(key, name, {"name": name}, 1.0, end)
        assert [texts["name"] for texts in await store.of_program(KEY, 2.0)] == ["a", "b"]
        assert [texts["name"] for texts in await store.of_program(KEY, 7.0)] == ["b"]
        await store.drop(KEY, "b")
        assert await store.of_program(KEY, 7.0) == []

    check(steps)


def test_of_all_who_drop_a_handle_one_is_told_that_it_was_there(check):
    async def steps(store):
        await store.begin(KEY, "pf_1", TEXTS, 1.0, 11.0)
        assert await store.drop(KEY, "pf_1")
        assert not await store.drop(KEY, "pf_1")
        # Also after its time: by that its maker knows that nobody came.
        await store.begin(KEY, "pf_2", TEXTS, 1.0, 2.0)
        assert await store.find("t", "pf_2", 3.0) is None
        assert await store.drop(KEY, "pf_2")
        assert len(store) == 0

    check(steps)


def test_a_tenant_has_so_many_and_takes_no_room_of_others(check):
    async def steps(store):
        other = ProgramKey("u", "p")
        assert [await store.begin(KEY, f"pf_{n}", TEXTS, 1.0, 9.0) for n in range(3)] == [
            True, True, False,
        ]  # fmt: skip
        assert await store.begin(other, "pf_a", TEXTS, 1.0, 9.0)
        # What is over makes room; what is written again needs none.
        assert await store.begin(KEY, "pf_0", TEXTS, 1.0, 20.0)
        assert await store.begin(KEY, "pf_3", TEXTS, 9.0, 20.0)
        assert not await store.begin(KEY, "pf_4", TEXTS, 9.0, 20.0)

    check(steps, per_tenant=2)


def test_where_all_is_taken_the_tenant_that_has_most_gives_way(check):
    async def steps(store):
        loud, quiet, late = (ProgramKey(name, "p") for name in ("loud", "quiet", "late"))
        assert await store.begin(quiet, "q0", TEXTS, 1.0, 9.0)
        for number in range(5):
            assert await store.begin(loud, f"l{number}", TEXTS, 1.0 + number, 9.0 + number)
        assert await store.begin(late, "x0", TEXTS, 6.0, 9.0)
        assert await store.begin(quiet, "q1", TEXTS, 6.0, 9.0)
        # A loud one's own takes the place of its oldest.
        assert await store.begin(loud, "l5", TEXTS, 6.0, 20.0)
        names = {"loud": "l0 l1 l2 l3 l4 l5", "quiet": "q0 q1", "late": "x0"}
        found = [
            name
            for tenant, each in names.items()
            for name in each.split()
            if await store.find(tenant, name, 6.0) is not None
        ]
        assert found == ["l3", "l4", "l5", "q0", "q1", "x0"]
        # What has ended makes room by itself.
        for number in range(6):
            assert await store.begin(late, f"y{number}", TEXTS, 30.0, 40.0)
        assert len(await store.of_program(late, 31.0)) == 6

    check(steps, per_tenant=6, in_all=6)


def test_many_tenants_with_a_few_each_keep_none_out(check):
    async def steps(store):
        for number in range(40):
            assert await store.begin(ProgramKey(f"t{number}", "p"), "pf", TEXTS, 1.0, 9.0)
        honest = ProgramKey("honest", "p")
        assert await store.begin(honest, "pf", TEXTS, 1.0, 9.0)
        assert await store.find("honest", "pf", 2.0) is not None

    check(steps, per_tenant=4, in_all=8)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 50), st.booleans()), max_size=30))
@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_bounds_hold_whatever_happens(check, actions):
    async def steps(store):
        live: dict[str, dict[str, int]] = {}
        for number, (tenant, ttl, drop) in enumerate(actions):
            of_tenant = live.setdefault(f"t{tenant}", {})
            room = len(of_tenant) < 4
            key, name = ProgramKey(f"t{tenant}", "p"), f"pf_{number}"
            assert await store.begin(key, name, TEXTS, 0.0, float(ttl)) is room
            if room and drop:
                assert await store.drop(key, name)
            elif room:
                of_tenant[name] = ttl
            for owner, names in live.items():
                for gone in [n for n in names if await store.find(owner, n, 0.5) is None]:
                    del names[gone]
            held = {owner: len(names) for owner, names in live.items()}
            assert sum(held.values()) <= 9
            # Where one has given way, it had as many as any other.
            assert room or held[f"t{tenant}"] == 4
        for tenant, names in live.items():
            found = await store.of_program(ProgramKey(tenant, "p"), 25.0)
            assert len(found) == sum(end > 25 for end in names.values())

    check(steps, per_tenant=4, in_all=9)


def apart(server: RedisServer, steps: Callable[..., Awaitable[None]]) -> None:
    """Run the steps with a line, a gateway on it, and another one with a line of its own."""

    async def main() -> None:
        prefix = next(_prefixes)
        async with RedisProxy(server.port) as line:
            links = [RedisLink(url, prefix, 5.0) for url in (line.url, server.url)]
            try:
                await steps(line, links[0], *map(RedisHandles, links))
            finally:
                for link in links:
                    await link.aclose()

    asyncio.run(main())


def test_what_one_gateway_began_another_changes_and_uses_up(redis_server):
    async def steps(line, link, left, right):
        await left.begin(KEY, "pf_1", TEXTS, 1.0, 11.0)
        assert dict(await right.find("t", "pf_1", 2.0)) == TEXTS
        await right.update(KEY, "pf_1", {"state": "taken"})
        assert (await left.find("t", "pf_1", 2.0))["state"] == "taken"
        assert await right.drop(KEY, "pf_1")
        assert await left.find("t", "pf_1", 2.0) is None
        assert await left.of_program(KEY, 2.0) == []
        assert not await left.drop(KEY, "pf_1")

    apart(redis_server, steps)


@pytest.mark.parametrize("told", [True, False], ids=["known to be away", "found out"])
def test_while_redis_is_away_a_gateway_goes_by_what_it_knows(redis_server, told):
    async def steps(line, link, left, right):
        await left.begin(KEY, "pf_1", TEXTS, 1.0, 11.0)
        await right.begin(KEY, "pf_2", TEXTS, 1.0, 11.0)
        line.set(Line.CUT)
        link.away = told
        assert await left.begin(KEY, "pf_3", TEXTS, 1.0, 12.0)
        await left.update(KEY, "pf_1", {"state": "done"})
        assert (await left.find("t", "pf_1", 2.0))["state"] == "done"
        with pytest.raises(TableUnavailable):
            await left.find("t", "pf_2", 2.0)
        assert len(await left.of_program(KEY, 2.0)) == 2
        assert await left.drop(KEY, "pf_3")
        assert await left.begin(KEY, "pf_4", TEXTS, 1.0, 12.0)
        assert (await right.find("t", "pf_1", 2.0))["state"] == "running"
        line.set(Line.OPEN)
        link.away = False
        await left.flush(2.0)
        assert (await right.find("t", "pf_1", 2.0))["state"] == "done"
        assert await right.find("t", "pf_3", 2.0) is None
        assert len(await right.of_program(KEY, 2.0)) == 3
        assert await left.find("t", "pf_2", 2.0) is not None

    apart(redis_server, steps)


def test_what_changes_while_it_is_written_is_written_as_it_is_then(redis_server, monkeypatch):
    async def steps(line, link, left, right):
        link.away = True
        assert await left.begin(KEY, "pf_1", TEXTS, 1.0, 11.0)
        link.away = False
        write, writes = left._begin, []

        async def slowly(names, arguments):
            written = await write(names, arguments)
            writes.append(arguments)
            if len(writes) == 1:
                assert await left.update(KEY, "pf_1", {"state": "done"})
            return written

        monkeypatch.setattr(left, "_begin", slowly)
        await left.flush(2.0)
        assert len(writes) == 2
        assert (await right.find("t", "pf_1", 2.0))["state"] == "done"
        assert (await left.find("t", "pf_1", 2.0))["state"] == "done"

    apart(redis_server, steps)


def test_what_is_dropped_while_it_is_written_is_not_there_again(redis_server, monkeypatch):
    async def steps(line, link, left, right):
        link.away = True
        assert await left.begin(KEY, "pf_1", TEXTS, 1.0, 11.0)
        link.away = False
        write = left._begin

        async def after_the_drop(names, arguments):
            assert await left.drop(KEY, "pf_1")
            return await write(names, arguments)

        monkeypatch.setattr(left, "_begin", after_the_drop)
        await left.flush(2.0)
        assert await right.find("t", "pf_1", 2.0) is None
        assert await right.of_program(KEY, 2.0) == []

    apart(redis_server, steps)
