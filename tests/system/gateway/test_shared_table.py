"""Two gateways with one process table on a real Redis server."""

import asyncio
import re
from typing import Any

import pytest
from support.redis_server import RedisServer
from support.waiting import DEADLINE_S

pytestmark = [pytest.mark.system, pytest.mark.anyio]


async def test_gateways_share_programs(redis: RedisServer, engine: Any, weft: Any) -> None:
    async with (
        engine() as stub,
        weft(stub, redis_url=redis.url) as first,
        weft(stub, redis_url=redis.url) as second,
    ):
        await first.client.post("/v1/sessions", json={"id": "s"})
        for gateway in (first, second, first):
            got = await gateway.call(headers={"x-session-id": "s"})
            assert got.status_code == 200
        session = (await second.client.get("/v1/sessions/s")).json()
        assert (session["calls"], session["calls_in_flight"]) == (3, 0)


async def test_each_gateway_counts_all_programs(redis: RedisServer, engine: Any, weft: Any) -> None:
    async with (
        engine() as stub,
        weft(stub, redis_url=redis.url) as first,
        weft(stub, redis_url=redis.url) as second,
    ):
        for name in "abc":
            await first.client.post("/v1/sessions", json={"id": name})
        for gateway in (first, second):
            assert "weft_programs 3.0" in (await gateway.client.get("/metrics")).text
        for name in "ab":
            await second.client.delete(f"/v1/sessions/{name}")
        for gateway in (first, second):
            assert "weft_programs 1.0" in (await gateway.client.get("/metrics")).text


@pytest.mark.parametrize("path", ["/metrics", "/health"])
async def test_a_scrape_and_a_health_check_count_the_calls_in_flight(
    path: str, redis: RedisServer, engine: Any, weft: Any, until: Any
) -> None:
    async def script(wire: Any, request: Any) -> None:
        await release.wait()
        await wire.plain({})

    release = asyncio.Event()
    async with (
        engine(script=script) as stub,
        weft(stub, redis_url=redis.url) as busy,
        weft(stub, redis_url=redis.url) as quiet,
    ):
        calls = [asyncio.create_task(each.call()) for each in [busy] * 5 + [quiet]]
        await until(lambda: len(stub.requests) == 6)
        for gateway in (busy, quiet):
            assert await shown_in_flight(gateway, path) == 6
        release.set()
        assert {(await call).status_code for call in calls} == {200}
        await until(lambda: busy.parts.table._open == quiet.parts.table._open == {})
        # Both gateways report no call in flight, in any order of the last calls.
        for gateway in (busy, quiet):
            assert await shown_in_flight(gateway, path) == 0


async def test_simultaneous_calls_are_spread_over_the_replicas(
    redis: RedisServer, engine: Any, weft: Any
) -> None:
    async with engine() as one, engine() as two, weft(one, two, redis_url=redis.url) as gateway:
        await asyncio.gather(*(gateway.call() for _ in range(24)))
        assert min(len(one.requests), len(two.requests)) >= 8


async def test_an_idle_gateway_follows_the_calls_of_another(
    redis: RedisServer, engine: Any, weft: Any, until: Any
) -> None:
    release = asyncio.Event()

    async def script(wire: Any, request: Any) -> None:
        await release.wait()
        await wire.plain({})

    async with (
        engine(script=script) as stub,
        weft(stub, redis_url=redis.url) as busy,
        weft(stub, redis_url=redis.url) as idle,
    ):
        call = asyncio.create_task(busy.call())
        await until(lambda: idle.parts.table.in_flight().get("r0") == 1)
        release.set()
        await call
        await until(lambda: not idle.parts.table.in_flight().get("r0"))


async def shown_in_flight(gateway: Any, path: str) -> float:
    """Return the calls in flight on r0, without a request that updates another count."""
    got = await gateway.client.get(path)
    if path == "/health":
        return float(got.json()["replicas"][0]["calls_in_flight"])
    (value,) = re.findall(r'weft_calls_in_flight\{replica="r0"\} (\S+)', got.text)
    return float(value)


async def test_gateways_with_different_replica_lists_agree_on_homes(
    redis: RedisServer, engine: Any, weft: Any
) -> None:
    """In a rolling restart, the new gateway has one more replica, listed first."""
    pinned = {"redis_url": redis.url, "balancer": "locality", "locality_threshold_tokens": 0}
    async with engine() as one, engine() as two, engine() as more:
        before = f"{one.url},{two.url}"
        async with (
            weft(replicas=before, **pinned) as old,
            weft(replicas=f"{more.url},{before}", **pinned) as new,
        ):
            names = [stub.url.removeprefix("http://") for stub in (one, two)]
            for number in range(8):
                headers = {"x-session-id": f"run{number}"}
                answers = [await gateway.call(headers=headers) for gateway in (old, new, old)]
                homes = {got.headers["x-weft-replica"] for got in answers}
                assert len(homes) == 1
                assert homes <= set(names)
            assert [replica.name for replica in old.parts.registry] == names
            assert len(one.requests) + len(two.requests) == 24
            assert more.requests == []


async def test_many_calls_through_both_gateways_are_counted_once(
    redis: RedisServer, engine: Any, weft: Any
) -> None:
    async with (
        engine() as stub,
        # The long timeout keeps a busy machine from looking like an outage.
        weft(stub, redis_url=redis.url, redis_timeout_s=20, lineage=False) as first,
        weft(stub, redis_url=redis.url, redis_timeout_s=20, lineage=False) as second,
    ):
        answers = await asyncio.gather(
            *(
                gateway.call(headers={"x-session-id": f"s{n % 7}"} if n % 2 else {})
                for n in range(40)
                for gateway in (first, second)
            )
        )
        assert {answer.status_code for answer in answers} == {200}
        listed = (await first.client.get("/v1/sessions")).json()["data"]
        assert sum(session["calls"] for session in listed) == 40
        assert len(listed) == 7
        # A call refreshes the gateway's counts of calls in flight.
        for gateway in (first, second):
            await gateway.call()


async def test_calls_continue_in_local_mode_during_an_outage(
    redis: RedisServer, engine: Any, weft: Any, until: Any
) -> None:
    named = {"x-session-id": "s"}
    async with engine() as stub, weft(stub, redis_url=redis.url) as gateway:

        async def shown() -> tuple[bool, bool]:
            health = (await gateway.client.get("/health")).json()
            metrics = (await gateway.client.get("/metrics")).text
            return health["table"]["local"], "weft_table_local 1.0" in metrics

        assert "x-weft-table" not in (await gateway.call(headers=named)).headers
        assert await shown() == (False, False)
        redis.kill()
        for _ in range(3):
            got = await gateway.call(headers=named)
            assert (got.status_code, got.headers["x-weft-table"]) == (200, "local")
        session = await gateway.client.get("/v1/sessions/s")
        assert (session.status_code, session.json()["calls"]) == (200, 4)
        assert await shown() == (True, True)
        redis.start()
        await until(lambda: not gateway.parts.table.local)
        got = await gateway.call(headers=named)
        assert (got.status_code, "x-weft-table" in got.headers) == (200, False)
        assert await shown() == (False, False)
        # The rows were lost with Redis, so the next call creates the program again.
        assert (await gateway.client.get("/v1/sessions/s")).json()["calls"] == 1
        assert len(stub.requests) == 5


async def test_a_family_of_agents_is_one_program_through_both_gateways(
    redis: RedisServer, engine: Any, weft: Any
) -> None:
    async def script(wire: Any, request: Any) -> None:
        await release.wait()
        await wire.plain({})

    release = asyncio.Event()
    async with (
        engine(script=script) as stub,
        weft(stub, redis_url=redis.url) as left,
        weft(stub, redis_url=redis.url) as right,
    ):
        calls = []
        for number, (gateway, name, parent) in enumerate(
            ((left, "root", ""), (right, "child", "root"), (left, "grandchild", "child"))
        ):
            headers = {"x-session-id": name} | ({"x-parent-session-id": parent} if parent else {})
            calls.append(asyncio.create_task(gateway.call(headers=headers)))
            async with asyncio.timeout(DEADLINE_S):
                while len(stub.requests) <= number:  # noqa: ASYNC110
                    await asyncio.sleep(0.005)
        session = (await right.client.get("/v1/sessions/root")).json()
        assert {(t["thread"], t["parent"]) for t in session["threads"]} == {
            ("main", None),
            ("child", "main"),
            ("grandchild", "child"),
        }
        release.set()
        assert {(await call).headers["x-weft-program"] for call in calls} == {"root"}
        assert (await left.client.get("/v1/sessions/child")).status_code == 404
        for gateway in (left, right):
            await gateway.call()
