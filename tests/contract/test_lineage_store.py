"""Contract of the lineage stores: in memory and on a real Redis server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from itertools import count
from typing import Any

import pytest
import redis
from support.redis_server import RedisServer
from weft_gateway.programs.lineage.marks import Entry, Known, Mark, State
from weft_gateway.programs.lineage.memory import MAX_MARKS, MemoryLineage
from weft_gateway.programs.lineage.redis import MAX_ASKED, RedisLineage
from weft_gateway.programs.redis_link import RedisLink
from weft_gateway.programs.table import TableUnavailable

_prefixes = (f"lineage{number}" for number in count())
NOW = 1000.0


def mark(program: str = "p", thread: str = "main", state: int = State.RUNS, **more: Any) -> Mark:
    return Mark(program, thread, state, NOW, **more)


@pytest.fixture(params=["memory", "redis"])
def run(request) -> Callable[..., None]:
    """Return a runner that passes the stores of two gateways to the steps. In memory both are the
    same store.
    """

    def go(steps: Callable[..., Coroutine[Any, Any, None]]) -> None:
        async def main() -> None:
            if request.param == "memory":
                store = MemoryLineage()
                await steps(store, store)
                return
            server: RedisServer = request.getfixturevalue("redis_server")
            prefix = next(_prefixes)
            links = [RedisLink(server.url, prefix, 20.0) for _ in range(2)]
            try:
                await steps(*map(RedisLineage, links))
            finally:
                for link in links:
                    await link.aclose()

        asyncio.run(main())

    return go


async def put(store, *entries: tuple[int, Mark], folds=(), tenant="t") -> None:
    await store.put(tenant, [Entry(*entry) for entry in entries], folds, NOW)


async def get(store, *fingerprints: int, tenant="t") -> Known:
    return await store.get_many(tenant, fingerprints, NOW)


def test_gateways_share_marks(run):
    async def steps(left, right):
        assert await get(right, 1) == Known({}, {})
        marks = mark(), mark("q", length=7, tail=2**64 - 1, state=State.PROVEN)
        await put(left, (1, marks[0]), (2**64 - 1, marks[1]))
        known = await get(right, 1, 2, 2**64 - 1)
        assert {f: list(m) for f, m in known.marks.items()} == {
            1: [marks[0]], 2**64 - 1: [marks[1]]
        }  # fmt: skip
        assert (await get(right, 1, tenant="u")).marks == {}

    run(steps)


def test_marks_are_newest_first_and_merged_per_thread(run):
    async def steps(left, right):
        await put(left, (1, mark("a", state=State.EXTENDED)))
        await put(right, (1, mark("b")))
        await put(left, (1, mark("a", state=State.ANSWERED)))
        (found,) = (await get(right, 1)).marks.values()
        assert list(found) == [mark("a", state=State.EXTENDED | State.ANSWERED), mark("b")]

    run(steps)


def test_marks_per_fingerprint_are_bounded(run):
    async def steps(left, right):
        for n in range(2 * MAX_MARKS):
            await put(left, (1, mark(f"p{n}")))
        (found,) = (await get(right, 1)).marks.values()
        assert [m.program for m in found] == [f"p{31 - n}" for n in range(MAX_MARKS)]

    run(steps)


def test_programs_fold_and_unfold(run):
    async def steps(left, right):
        await put(left, (1, mark("a")), (2, mark("b")), folds=[("a", "b")])
        await put(left, folds=[("b", "c")])
        assert (await get(right, 1, 2)).folded == {"a": "c", "b": "c"}
        await put(right, folds=[("b", "")])
        assert (await get(left, 1, 2)).folded == {"a": "b"}

    run(steps)


def test_many_fingerprints_are_read_at_once(run):
    async def steps(left, right):
        await put(left, *((n, mark()) for n in range(0, 600, 2)))
        assert set((await get(right, *range(MAX_ASKED))).marks) == set(range(0, MAX_ASKED, 2))
        assert (await get(right)).marks == {}

    run(steps)


def test_redis_evicts_the_least_recently_used_fingerprints_and_expired_ones(
    redis_server,
):
    async def main():
        prefix = next(_prefixes)
        writer, reader = (
            RedisLineage(RedisLink(redis_server.url, prefix, 20.0), limit=10) for _ in range(2)
        )
        for n in range(30):
            await put(writer, (n, mark()), folds=[("a", "b")])
        assert set((await get(reader, *range(30))).marks) == set(range(20, 30))
        with redis.Redis.from_url(redis_server.url) as client:
            keys = client.keys(f"{{{prefix}}}lineage:*")
            assert len(keys) == 4
            assert all(client.ttl(key) > 0 for key in keys)
            # Recently used fingerprints stay. Expired ones are neither returned nor kept.
            used = f"{{{prefix}}}lineage:marks_used"
            for member in client.zrange(used, 0, -1):
                client.zincrby(used, -1e9 if member == b"t/%016x" % 20 else -1000.0, member)
            assert set((await get(reader, *range(30))).marks) == set(range(21, 30))
            await put(writer, (40, mark()))
            assert client.zcard(used) == client.hlen(f"{{{prefix}}}lineage:marks") == 10
        await writer._link.aclose()
        await reader._link.aclose()

    asyncio.run(main())


def test_a_gateway_uses_its_local_marks_during_an_outage(tmp_path):
    server = RedisServer(tmp_path)
    try:

        async def main():
            link = RedisLink(server.url, next(_prefixes), 5.0)
            losses: list[TableUnavailable] = []
            link.on_loss = losses.append
            store, other = RedisLineage(link), RedisLineage(link)
            await put(store, (1, mark()))
            server.kill()
            await put(store, (2, mark()))
            assert len(losses) == 1
            link.away = True
            assert set((await get(store, 1, 2)).marks) == {1, 2}
            server.start()
            link.away = False
            await put(store, (3, mark()))
            assert set((await get(other, 1, 2, 3)).marks) == {3}
            await link.aclose()

        asyncio.run(main())
    finally:
        server.kill()
