"""Contract of prefill handle stores: in memory, on Redis, and on Redis with several gateways."""

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
    """Return `check(steps, **limits)`, which runs the steps on an empty store."""
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


def test_a_handle_is_visible_to_its_tenant_until_it_expires(check):
    async def steps(store):
        assert await store.begin(KEY, "pf_1", TEXTS, 1.0, 11.0)
        assert dict(await store.find("t", "pf_1", 10.9)) == TEXTS
        assert await store.find("t", "pf_1", 11.0) is None
        assert await store.find("u", "pf_1", 1.0) is None
        assert await store.find("t", "pf_2", 1.0) is None
        assert await store.of_program(ProgramKey("u", KEY.program), 1.0) == []
        assert len(store) == 1

    check(steps)


def test_an_update_changes_only_existing_handles(check):
    async def steps(store):
        await store.begin(KEY, "pf_1", TEXTS, 1.0, 11.0)
        assert await store.update(KEY, "pf_1", {"state": "done", "report": "{}"})
        now = {"state": "done", "prefix": "日\n", "report": "{}"}
        assert dict(await store.find("t", "pf_1", 2.0)) == now
        await store.drop(KEY, "pf_1")
        assert not await store.update(KEY, "pf_1", {"state": "failed"})
        assert await store.find("t", "pf_1", 2.0) is None

    check(steps)


def test_of_program_lists_the_live_handles_of_one_program(check):
    async def steps(store):
        for name, key, end in (("b", KEY, 9.0), ("a", KEY, 7.0), ("c", ProgramKey("t", "q"), 9.0)):
            await store.begin(key, name, {"name": name}, 1.0, end)
        assert [texts["name"] for texts in await store.of_program(KEY, 2.0)] == ["a", "b"]
        assert [texts["name"] for texts in await store.of_program(KEY, 7.0)] == ["b"]
        await store.drop(KEY, "b")
        assert await store.of_program(KEY, 7.0) == []

    check(steps)


def test_only_the_first_drop_of_a_handle_returns_true(check):
    async def steps(store):
        await store.begin(KEY, "pf_1", TEXTS, 1.0, 11.0)
        assert await store.drop(KEY, "pf_1")
        assert not await store.drop(KEY, "pf_1")
        # Expired handles too: the result of `drop` shows that no call used the handle.
        await store.begin(KEY, "pf_2", TEXTS, 1.0, 2.0)
        assert await store.find("t", "pf_2", 3.0) is None
        assert await store.drop(KEY, "pf_2")
        assert len(store) == 0

    check(steps)


def test_handles_are_limited_per_tenant(check):
    async def steps(store):
        other = ProgramKey("u", "p")
        assert [await store.begin(KEY, f"pf_{n}", TEXTS, 1.0, 9.0) for n in range(3)] == [
            True, True, False,
        ]  # fmt: skip
        assert await store.begin(other, "pf_a", TEXTS, 1.0, 9.0)
        # Expired handles free room. Rewriting a handle needs none.
        assert await store.begin(KEY, "pf_0", TEXTS, 1.0, 20.0)
        assert await store.begin(KEY, "pf_3", TEXTS, 9.0, 20.0)
        assert not await store.begin(KEY, "pf_4", TEXTS, 9.0, 20.0)

    check(steps, per_tenant=2)


def test_a_full_store_evicts_the_oldest_handle_of_the_largest_tenant(check):
    async def steps(store):
        loud, quiet, late = (ProgramKey(name, "p") for name in ("loud", "quiet", "late"))
        assert await store.begin(quiet, "q0", TEXTS, 1.0, 9.0)
        for number in range(5):
            assert await store.begin(loud, f"l{number}", TEXTS, 1.0 + number, 9.0 + number)
        assert await store.begin(late, "x0", TEXTS, 6.0, 9.0)
        assert await store.begin(quiet, "q1", TEXTS, 6.0, 9.0)
        # The tenant's oldest handle makes room for its new one.
        assert await store.begin(loud, "l5", TEXTS, 6.0, 20.0)
        names = {"loud": "l0 l1 l2 l3 l4 l5", "quiet": "q0 q1", "late": "x0"}
        found = [
            name
            for tenant, each in names.items()
            for name in each.split()
            if await store.find(tenant, name, 6.0) is not None
        ]
        assert found == ["l3", "l4", "l5", "q0", "q1", "x0"]
        # Expired handles free room without an eviction.
        for number in range(6):
            assert await store.begin(late, f"y{number}", TEXTS, 30.0, 40.0)
        assert len(await store.of_program(late, 31.0)) == 6

    check(steps, per_tenant=6, in_all=6)


def test_many_small_tenants_do_not_block_another_tenant(check):
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
def test_limits_hold_for_random_sequences(check, actions):
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
                for missing in [n for n in names if await store.find(owner, n, 0.5) is None]:
                    del names[missing]
            held = {owner: len(names) for owner, names in live.items()}
            assert sum(held.values()) <= 9
            # A tenant whose own handle is evicted has at least as many as any other tenant.
            assert room or held[f"t{tenant}"] == 4
        for tenant, names in live.items():
            found = await store.of_program(ProgramKey(tenant, "p"), 25.0)
            assert len(found) == sum(end > 25 for end in names.values())

    check(steps, per_tenant=4, in_all=9)


def run_on_two_gateways(server: RedisServer, steps: Callable[..., Awaitable[None]]) -> None:
    """Run the steps on two gateways, one of which reaches Redis through a proxy."""

    async def main() -> None:
        prefix = next(_prefixes)
        async with RedisProxy(server.port) as proxy:
            links = [RedisLink(url, prefix, 5.0) for url in (proxy.url, server.url)]
            try:
                await steps(proxy, links[0], *map(RedisHandles, links))
            finally:
                for link in links:
                    await link.aclose()

    asyncio.run(main())


def test_gateways_share_handles_on_redis(redis_server):
    async def steps(proxy, link, left, right):
        await left.begin(KEY, "pf_1", TEXTS, 1.0, 11.0)
        assert dict(await right.find("t", "pf_1", 2.0)) == TEXTS
        await right.update(KEY, "pf_1", {"state": "taken"})
        assert (await left.find("t", "pf_1", 2.0))["state"] == "taken"
        assert await right.drop(KEY, "pf_1")
        assert await left.find("t", "pf_1", 2.0) is None
        assert await left.of_program(KEY, 2.0) == []
        assert not await left.drop(KEY, "pf_1")

    run_on_two_gateways(redis_server, steps)


@pytest.mark.parametrize("known", [True, False], ids=["known", "discovered"])
def test_a_gateway_uses_its_local_handles_during_an_outage(redis_server, known):
    async def steps(proxy, link, left, right):
        await left.begin(KEY, "pf_1", TEXTS, 1.0, 11.0)
        await right.begin(KEY, "pf_2", TEXTS, 1.0, 11.0)
        proxy.set(Line.CUT)
        link.away = known
        assert await left.begin(KEY, "pf_3", TEXTS, 1.0, 12.0)
        await left.update(KEY, "pf_1", {"state": "done"})
        assert (await left.find("t", "pf_1", 2.0))["state"] == "done"
        with pytest.raises(TableUnavailable):
            await left.find("t", "pf_2", 2.0)
        assert len(await left.of_program(KEY, 2.0)) == 2
        assert await left.drop(KEY, "pf_3")
        assert await left.begin(KEY, "pf_4", TEXTS, 1.0, 12.0)
        assert (await right.find("t", "pf_1", 2.0))["state"] == "running"
        proxy.set(Line.OPEN)
        link.away = False
        await left.flush(2.0)
        assert (await right.find("t", "pf_1", 2.0))["state"] == "done"
        assert await right.find("t", "pf_3", 2.0) is None
        assert len(await right.of_program(KEY, 2.0)) == 3
        assert await left.find("t", "pf_2", 2.0) is not None

    run_on_two_gateways(redis_server, steps)


def test_flush_writes_an_update_that_arrives_during_the_write(redis_server, monkeypatch):
    async def steps(proxy, link, left, right):
        link.away = True
        assert await left.begin(KEY, "pf_1", TEXTS, 1.0, 11.0)
        link.away = False
        write, writes = left._begin, []

        async def update_after_write(names, arguments):
            written = await write(names, arguments)
            writes.append(arguments)
            if len(writes) == 1:
                assert await left.update(KEY, "pf_1", {"state": "done"})
            return written

        monkeypatch.setattr(left, "_begin", update_after_write)
        await left.flush(2.0)
        assert len(writes) == 2
        assert (await right.find("t", "pf_1", 2.0))["state"] == "done"
        assert (await left.find("t", "pf_1", 2.0))["state"] == "done"

    run_on_two_gateways(redis_server, steps)


def test_flush_does_not_restore_a_handle_dropped_during_the_write(redis_server, monkeypatch):
    async def steps(proxy, link, left, right):
        link.away = True
        assert await left.begin(KEY, "pf_1", TEXTS, 1.0, 11.0)
        link.away = False
        write = left._begin

        async def drop_before_write(names, arguments):
            assert await left.drop(KEY, "pf_1")
            return await write(names, arguments)

        monkeypatch.setattr(left, "_begin", drop_before_write)
        await left.flush(2.0)
        assert await right.find("t", "pf_1", 2.0) is None
        assert await right.of_program(KEY, 2.0) == []

    run_on_two_gateways(redis_server, steps)
