"""The store of answers, in memory and on Redis."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count

import pytest
from support.redis_proxy import Line, RedisProxy
from weft_gateway.model import ProgramKey
from weft_gateway.programs.redis_link import RedisLink
from weft_gateway.programs.redis_response_store import RedisResponseStore
from weft_gateway.programs.response_store import Connection, ResponseStore, StoredResponse
from weft_gateway.programs.table import TableUnavailable

_prefixes = (f"stores{number}" for number in count())
KEY = ProgramKey("t", "a\nprogram")
MINE, THEIRS = ProgramKey("mine", "p"), ProgramKey("theirs", "q")
Run = Callable[..., None]


class Time:
    """A clock that all stores of a test read."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def answer(previous: str = "", size: int = 0, **more: str) -> StoredResponse:
    about = {"program": KEY.program, "thread": "a\nthread"} | more
    return StoredResponse(
        **about, previous=previous, items=b"i" * (size // 2), response=b"r" * (size - size // 2)
    )


@pytest.fixture(params=["memory", "redis"])
def run(request: pytest.FixtureRequest) -> Run:
    """Run steps on the stores of two gateways: the same one if they are in memory."""

    def on_memory(steps: Callable[..., Awaitable[None]], **options: float) -> None:
        clock = Time()
        store = ResponseStore(**options, clock=clock)
        asyncio.run(steps(clock, store, store))

    def on_redis(steps: Callable[..., Awaitable[None]], **options: float) -> None:
        server = request.getfixturevalue("redis_server")

        async def main() -> None:
            prefix, clock = next(_prefixes), Time()
            stores = [
                RedisResponseStore(RedisLink(server.url, prefix, 5.0), **options) for _ in "lr"
            ]
            try:
                for each in stores:
                    each._clock = clock
                await steps(clock, *stores)
            finally:
                for each in stores:
                    await each._link.aclose()

        asyncio.run(main())

    return on_memory if request.param == "memory" else on_redis


async def kept(store: ResponseStore, tenant: str, *names: str) -> list[str]:
    """Return those of the names that the shared store has."""
    if isinstance(store, RedisResponseStore):
        return [name for name in names if await store._read(tenant, name, 0)]
    return [name for name in names if await store.find(tenant, name)]


async def chain(store: ResponseStore, name: str, most: int = 1 << 20) -> list[str]:
    return [each.previous for each in (await store.chain("t", name, most)).values()]


def test_gateways_share_answers(run):
    async def steps(clock, left, right):
        first, second = answer(size=7), answer("resp_1", 9, replica="r1")
        await left.remember(KEY, {"resp_1": first, "msg_1": answer("resp_1")})
        await left.remember(KEY, {"resp_2": second})
        clock.now = 101.0
        found = await right.find("t", "resp_2")
        for name in ("program", "thread", "previous", "replica", "items", "response"):
            assert getattr(found, name) == getattr(second, name)
        assert (await right.find("t", "msg_1")).previous == "resp_1"
        assert right.place("t", "resp_2") == (KEY.program, "a\nthread")
        assert right.root("t", "resp_2") == KEY.program
        assert right.root("t", "resp_9") == "resp_9"
        assert await right.find("other", "resp_2") is None
        assert right.root("other", "resp_2") == "resp_2"
        await right.forget("t", "resp_2")
        assert await right.find("t", "resp_2") is None
        assert not await kept(right, "t", "resp_2")

    run(steps)


def test_a_chain_is_read_to_its_beginning(run):
    async def steps(clock, left, right):
        before = ""
        names = [f"resp_{number}" for number in range(600)]
        for name in names:
            await left.remember(KEY, {name: answer(before, 100)})
            before = name
        assert await chain(right, before) == [*reversed(names[:-1]), ""]
        # Up to a limit of bytes; the caller sees that it is exceeded.
        assert len(await chain(right, before, 1000)) == 11
        # Deleted by one gateway, it is gone for all.
        await left.forget("t", "resp_1")
        with pytest.raises(KeyError, match="resp_1"):
            await chain(right, before)
        await left.forget("t", before)
        assert await right.find("t", before) is None
        before = names[-2]
        # An engine may issue an id again.
        await left.remember(KEY, {"resp_1": answer(before)})
        with pytest.raises(KeyError):
            await chain(left, before)

    run(steps)


def test_a_full_store_loses_the_oldest_answers_of_the_largest_tenant(run):
    async def steps(clock, left, right):
        for number in range(2):
            await left.remember(MINE, {f"resp_m{number}": answer(size=1000)})
        for number in range(30):
            clock.now += 1.0
            await left.remember(THEIRS, {f"resp_{number}": answer(size=5000)})
        names = [f"resp_{number}" for number in range(30)]
        assert await kept(right, "mine", "resp_m0", "resp_m1") == ["resp_m0", "resp_m1"]
        known = await kept(right, "theirs", *names)
        assert known == names[-len(known) :]
        assert 5 <= len(known) <= 8
        # One answer that is too large replaces no other one.
        await left.remember(THEIRS, {"resp_large": answer(size=60_000)})
        assert await kept(right, "theirs", *names) == known
        assert not await kept(right, "theirs", "resp_large")
        # Many small ones count, too.
        for number in range(100):
            await left.remember(MINE, {f"resp_s{number}": answer()})
        assert len(await kept(right, "mine", *[f"resp_s{n}" for n in range(100)])) < 70

    run(steps, limit=50_000)


def test_a_chain_in_use_is_kept_as_a_whole(run):
    async def steps(clock, left, right):
        await left.remember(KEY, {"resp_1": answer(size=5000)})
        await left.remember(KEY, {"resp_2": answer("resp_1", 5000)})
        for number in range(3, 7):
            clock.now += 100.0
            await left.remember(KEY, {f"resp_{number}": answer(size=5000)})
            await chain(right, "resp_2")
            await right.flush()
        assert await kept(right, "t", *[f"resp_{n}" for n in range(1, 7)]) == [
            "resp_1", "resp_2", "resp_5", "resp_6",
        ]  # fmt: skip

    run(steps, limit=24_000)


def test_unused_answers_expire(run):
    async def steps(clock, left, right):
        await left.remember(KEY, {"resp_1": answer(), "resp_2": answer("resp_1")})
        clock.now = 280.0
        assert await chain(left, "resp_2") == ["resp_1", ""]
        await left.flush()
        clock.now = 460.0
        assert await chain(right, "resp_2") == ["resp_1", ""]
        clock.now = 661.0
        for store in (left, right):
            assert await store.find("t", "resp_1") is None
            assert store.root("t", "resp_2") == "resp_2"
        await left.remember(KEY, {"resp_3": answer()})
        assert not await kept(right, "t", "resp_1", "resp_2")

    run(steps, keep_s=200.0)


def test_an_id_belongs_to_the_first_tenant(run):
    async def steps(clock, left, right):
        await left.remember(MINE, {"resp_1": answer(replica="r0")})
        await right.remember(THEIRS, {"resp_1": answer(replica="r1")})
        for store in (left, right):
            assert await store.find("theirs", "resp_1") is None
        await right.forget("theirs", "resp_1")
        assert (await right.find("mine", "resp_1")).replica == "r0"
        # The tenant may use the id again.
        await right.remember(MINE, {"resp_1": answer(replica="r2")})
        assert (await right.find("mine", "resp_1")).replica == "r2"
        # Session names are separate for each tenant.
        for store, key in ((left, MINE), (right, THEIRS)):
            await store.remember(key, {"\x01session:run": None})
        assert (await left.find("theirs", "\x01session:run")).program == "q"
        for store in (left, right):
            await store.forget("mine", "resp_1")
        await right.remember(THEIRS, {"resp_1": answer(replica="r1")})
        assert (await left.find("theirs", "resp_1")).replica == "r1"
        # Another tenant may use it after it has expired.
        clock.now = 10_000.0
        await left.remember(MINE, {"resp_1": answer(replica="r3")})
        assert (await left.find("mine", "resp_1")).replica == "r3"
        assert await right.find("theirs", "resp_1") is None

    run(steps, keep_s=1000.0)


def test_the_answers_of_a_connection_stay_in_its_process(run):
    async def steps(clock, left, right):
        one, two = Connection(), Connection()
        assert one.keep("resp_1") != two.keep("resp_1")
        await left.remember(KEY, {one.name("resp_1"): answer()})
        assert left.known("t", one.name("resp_1"))
        assert await left.find("t", "resp_1") is None
        assert await left.find("t", two.name("resp_1")) is None
        if right is not left:
            assert await right.find("t", one.name("resp_1")) is None
            assert await left._link.redis.hlen(left._link.keys.of_answers[0]) == 0
        for name in one.names:
            await left.forget("t", name)
        assert await left.find("t", one.name("resp_1")) is None

    run(steps)


# On Redis only


def outage(server, steps, **options):
    """Run the steps on two stores, of which the first one uses a proxy."""

    async def main() -> None:
        prefix = next(_prefixes)
        async with RedisProxy(server.port) as proxy:
            links = [RedisLink(url, prefix, 5.0) for url in (proxy.url, server.url)]
            try:
                await steps(proxy, *(RedisResponseStore(link, **options) for link in links))
            finally:
                for link in links:
                    await link.aclose()

    asyncio.run(main())


def test_answers_of_an_outage_are_written_by_flush(redis_server):
    async def steps(proxy, left, right):
        proxy.set(Line.CUT)
        for number in range(600):
            await left.remember(KEY, {f"resp_{number}": answer(size=20_000)})
        assert await left.find("t", "resp_1") is not None
        with pytest.raises(TableUnavailable):
            await left.find("t", "resp_unknown")
        with pytest.raises(TableUnavailable):
            await left.chain("t", "resp_unknown", 1)
        assert await right.find("t", "resp_1") is None
        proxy.set(Line.OPEN)
        await left.flush()
        assert len(await kept(right, "t", *[f"resp_{n}" for n in range(600)])) == 600
        assert not left._unwritten

    outage(redis_server, steps)


def test_unwritten_answers_are_bounded_per_tenant(redis_server):
    async def steps(proxy, left, right):
        proxy.set(Line.CUT)
        for link in ("a", "b"):
            await left.remember(MINE, {link: answer(size=1000)})
        for number in range(10):
            await left.remember(THEIRS, {f"r{number}": answer(size=1000)})
        assert set(left._unwritten) == {
            ("mine", "a"), ("mine", "b"), ("theirs", "r8"), ("theirs", "r9"),
        }  # fmt: skip
        proxy.set(Line.OPEN)
        await left.flush()
        assert await right.find("mine", "a") is not None

    outage(redis_server, steps, limit=4 * 1800)


def test_very_large_answers_stay_in_their_process(redis_server):
    async def steps(proxy, left, right):
        await left.remember(MINE, {"resp_1": answer(size=9_000_000), "resp_2": answer(size=9)})
        assert left.known("mine", "resp_1")
        assert await kept(right, "mine", "resp_1", "resp_2") == ["resp_2"]

    outage(redis_server, steps)


def test_one_tenant_keeps_an_id_that_two_stored_during_an_outage(redis_server):
    async def steps(proxy, left, right):
        proxy.set(Line.CUT)
        await left.remember(MINE, {"resp_1": answer(replica="r0")})
        await right.remember(THEIRS, {"resp_1": answer(replica="r1")})
        assert (await left.find("mine", "resp_1")).replica == "r0"
        proxy.set(Line.OPEN)
        await left.flush()
        assert await left.find("mine", "resp_1") is None
        assert await right.find("mine", "resp_1") is None
        assert (await left.find("theirs", "resp_1")).replica == "r1"

    outage(redis_server, steps)


def test_all_counts_return_to_zero(redis_server):
    async def steps(proxy, left, right):
        for number in range(20):
            await left.remember(MINE, {f"resp_{number}": answer(size=100 * number)})
            await right.remember(MINE, {f"resp_{number}": answer(size=70 * number)})
        for number in range(20):
            await right.forget("mine", f"resp_{number}")
        assert await left._link.redis.keys(left._link.keys.base + b"*") == [
            left._link.keys.of_answers[4]
        ]
        assert await left._link.redis.get(left._link.keys.of_answers[4]) == b"0"

    outage(redis_server, steps, limit=12_000)
