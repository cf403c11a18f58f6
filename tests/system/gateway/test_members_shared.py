"""Two gateways on one real Redis server: replicas are added, drained and removed under load."""

from __future__ import annotations

import asyncio
import contextlib
import random
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
from support.redis_server import RedisServer
from support.stack import free_port
from support.waiting import DEADLINE_S

pytestmark = [pytest.mark.system, pytest.mark.anyio]

PINNED = {"balancer": "locality", "locality_threshold_tokens": 0}
CALL = {"model": "mock", "messages": [{"role": "user", "content": "x" * 400}]}


async def eventually(check: Any) -> Any:
    """Wait until an asynchronous check returns a true value, and return it."""
    async with asyncio.timeout(DEADLINE_S):
        while not (value := await check()):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    return value


async def members(gateway: Any) -> dict[str, dict[str, Any]]:
    listed = (await gateway.client.get("/weft/replicas")).json()["replicas"]
    return {each["name"]: each for each in listed}


async def is_safe(gateway: Any, name: str) -> bool:
    return bool((await members(gateway))[name]["safe_to_delete"])


async def post(gateway: Any, path: str, **body: Any) -> Any:
    return await gateway.client.post(f"/weft/replicas{path}", json=body)


async def test_a_change_reaches_the_other_gateway(
    redis: RedisServer, engine: Any, weft: Any, until: Any
) -> None:
    async with (
        engine() as one,
        engine() as two,
        weft(one, redis_url=redis.url) as left,
        weft(one, redis_url=redis.url) as right,
    ):
        await post(left, "", url=two.url, name="r1")
        await until(lambda: len(right.parts.registry.able()) == 2)
        assert {(await right.call()).headers["x-weft-replica"] for _ in range(4)} == {"r0", "r1"}
        await post(right, "/r0/drain", drain_s=0)
        await until(lambda: left.parts.registry["r0"].homes_until is not None)
        assert {(await left.call()).headers["x-weft-replica"] for _ in range(4)} == {"r1"}
        await eventually(lambda: is_safe(left, "r0"))
        assert (await left.client.delete("/weft/replicas/r0")).status_code == 200
        await until(lambda: right.parts.registry.get("r0") is None)


async def test_a_drain_waits_for_calls_of_the_other_gateway(
    redis: RedisServer, engine: Any, weft: Any, until: Any
) -> None:
    async def script(wire: Any, request: Any) -> None:
        await wire.stream(b"data: 1\n\n", end=False)
        await go.wait()
        await wire.pieces(b"data: [DONE]\n\n")

    go = asyncio.Event()
    async with (
        engine(script=script) as one,
        engine() as two,
        weft(one, redis_url=redis.url) as left,
        weft(one, redis_url=redis.url) as right,
    ):
        stream = asyncio.create_task(right.call(body={"stream": True}))
        await until(lambda: one.requests)
        await post(left, "", url=two.url, name="r1")
        await post(left, "/r0/drain", drain_s=0)

        async def waits() -> bool:
            return (await members(left))["r0"]["waits_for"] == ["1 call in flight"]

        await eventually(waits)
        got = await left.client.delete("/weft/replicas/r0")
        assert (got.status_code, got.json()["error"]["code"]) == (409, "replica_in_use")
        go.set()
        assert (await stream).text.endswith("data: [DONE]\n\n")
        await eventually(lambda: is_safe(left, "r0"))


async def test_a_program_of_the_other_gateway_keeps_its_home_during_the_drain(
    redis: RedisServer, engine: Any, weft: Any
) -> None:
    settings = {"redis_url": redis.url, **PINNED}
    async with engine() as one, engine() as two, weft(one, **settings) as left:
        headers = {"x-weft-program": "p"}
        assert (await left.call(headers=headers)).headers["x-weft-replica"] == "r0"
        await post(left, "", url=two.url, name="r1")
        await post(left, "/r0/drain", drain_s=600)
        # This gateway has not seen the program.
        async with weft(one, **settings) as right:
            got = await right.call(headers=headers)
            assert got.headers["x-weft-replica"] == "r0"
            receipt = (await right.client.get(f"/v1/receipts/{got.headers['x-request-id']}")).json()
            assert receipt["place"]["reason"] == "home of its program; r1 was proposed"
            assert receipt["place"]["rejected"] == {"r0": "draining"}
            assert (await right.call()).headers["x-weft-replica"] == "r1"
            await post(right, "/r0/drain", drain_s=0)
            got = await right.call(headers=headers)
            assert got.headers["x-weft-replica"] == "r1"


async def test_a_restarted_gateway_gets_the_present_members(
    redis: RedisServer, engine: Any, weft: Any
) -> None:
    async with engine() as one, engine() as two, engine() as three:
        async with weft(one, two, redis_url=redis.url) as gateway:
            await post(gateway, "", url=three.url, name="r2")
            await post(gateway, "/r1/drain", drain_s=600)
            got = await gateway.client.delete("/weft/replicas/r0?force=true")
            assert got.status_code == 200
        async with weft(one, two, redis_url=redis.url) as gateway:
            found = {name: each["state"] for name, each in (await members(gateway)).items()}
            assert found == {"r1": "draining", "r2": "serving"}
            assert (await gateway.call()).headers["x-weft-replica"] == "r2"
            # A removed replica of the settings can be added again.
            assert (await post(gateway, "", url=one.url, name="r0")).status_code == 201
        async with weft(one, two, redis_url=redis.url) as gateway:
            assert (await members(gateway)).keys() == {"r0", "r1", "r2"}


@pytest.mark.parametrize("how", ["kill", "pause"])
async def test_a_change_while_redis_is_away_is_refused_and_loses_nothing(
    how: str, redis: RedisServer, engine: Any, weft: Any, until: Any
) -> None:
    settings = {"redis_url": redis.url, "redis_timeout_s": 0.3}
    async with (
        engine() as one,
        engine() as two,
        weft(one, **settings) as left,
        weft(one, **settings) as right,
    ):
        await post(left, "", url=two.url, name="r1")
        await until(lambda: len(right.parts.registry.able()) == 2)
        getattr(redis, how)()
        got = await post(left, "/r0/drain", drain_s=0)
        assert (got.status_code, got.json()["error"]["code"]) == (503, "table_unavailable")
        got = await left.client.delete("/weft/replicas/r0")
        assert got.status_code in (409, 503)
        found = await members(left)
        assert found.keys() == {"r0", "r1"}
        assert not any(each["safe_to_delete"] for each in found.values())
        assert {(await left.call()).headers["x-weft-replica"] for _ in range(4)} == {"r0", "r1"}
        getattr(redis, {"kill": "start", "pause": "resume"}[how])()
        await until(lambda: not left.parts.table.local and not right.parts.table.local)

        # If Redis has lost its data, a gateway writes the members back.
        async def stored() -> bool:
            return (await left.parts.members.store.read(frozenset())).records.keys() == {"r1"}

        if how == "kill":
            await eventually(stored)

        # A change whose reply was lost may have been made; making it again is harmless. This
        # gateway may notice the outage only now.
        async def drained() -> bool:
            return (await post(right, "/r0/drain", drain_s=0)).status_code == 200

        await eventually(drained)
        await eventually(lambda: is_safe(left, "r0"))
        assert (await right.client.delete("/weft/replicas/r0")).status_code == 200
        await until(lambda: left.parts.registry.get("r0") is None)


async def test_concurrent_changes_through_both_gateways_agree(
    redis: RedisServer, engine: Any, weft: Any, until: Any
) -> None:
    async with (
        engine() as one,
        engine() as two,
        weft(one, redis_url=redis.url) as left,
        weft(one, redis_url=redis.url) as right,
    ):
        rng, codes = random.Random(7), set()

        async def change(gateway: Any) -> None:
            for _ in range(25):
                action = rng.choice(("add", "drain", "resume", "delete", "list"))
                if action == "add":
                    got = await post(gateway, "", url=two.url, name="r1")
                elif action == "delete":
                    got = await gateway.client.delete("/weft/replicas/r1")
                elif action == "list":
                    got = await gateway.client.get("/weft/replicas")
                else:
                    got = await post(gateway, f"/r1/{action}")
                codes.add(got.status_code)
                await gateway.call()

        await asyncio.gather(*(change(gateway) for gateway in (left, right, left, right)))
        assert codes <= {200, 201, 404, 409}, codes
        await post(left, "", url=two.url, name="r1")
        await post(right, "/r1/resume")

        async def agree() -> bool:
            found = [(await members(gateway)).get("r1", {}) for gateway in (left, right)]
            return [each.get("state") for each in found] == ["serving", "serving"]

        await eventually(agree)


class Fakes:
    """Processes of the fake engine, by URL."""

    def __init__(self) -> None:
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    async def start(self) -> str:
        port = free_port()
        command = [sys.executable, "-m", "weft_bench.fake", "--port", str(port), "--chunks", "40"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)  # noqa: ASYNC220
        url = f"http://127.0.0.1:{port}"
        self.processes[url] = process
        async with httpx.AsyncClient(trust_env=False) as client, asyncio.timeout(DEADLINE_S):
            while True:
                with contextlib.suppress(httpx.TransportError):
                    await client.get(f"{url}/health")
                    return url
                await asyncio.sleep(0.05)

    def kill(self, url: str) -> None:
        process = self.processes.pop(url)
        process.kill()
        process.wait()


@pytest.fixture
def fakes() -> Iterator[Fakes]:
    found = Fakes()
    yield found
    for url in list(found.processes):
        found.kill(url)


class Load:
    """Programs that call both gateways in turn until the context ends, half of them streaming.
    failed: answers that are not complete.
    """

    def __init__(self) -> None:
        self.failed: list[str] = []
        self.calls = 0
        self.over = False
        self.replicas: set[str] = set()

    @contextlib.asynccontextmanager
    async def on(self, *gateways: Any, programs: int = 12) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(self._run(number, gateways)) for number in range(programs)]
        try:
            yield
        finally:
            self.over = True
            await asyncio.gather(*tasks)

    async def more(self, calls: int) -> None:
        """Wait for some more calls."""
        until = self.calls + calls
        async with asyncio.timeout(120):
            while self.calls < until:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    async def _run(self, number: int, gateways: Any) -> None:
        turn = 0
        while not self.over:
            gateway = gateways[(number + turn) % len(gateways)]
            # Some programs end, so that new ones need a home.
            headers = {"x-weft-program": f"p{number}-{turn // 20}"}
            streams = turn % 2 == 0
            got = await gateway.client.post(
                "/v1/chat/completions", json={**CALL, "stream": streams}, headers=headers
            )
            whole = "[DONE]" in got.text if streams else "choices" in got.text
            if got.status_code != 200 or not whole or "error" in got.text:
                self.failed.append(f"{got.status_code} {got.text[-200:]}")
            else:
                self.replicas.add(got.headers["x-weft-replica"])
            turn += 1
            self.calls += 1


async def test_replacing_every_replica_under_load_fails_no_call(
    redis: RedisServer, fakes: Fakes, weft: Any, until: Any
) -> None:
    settings = {"redis_url": redis.url, "health_interval_s": 0.5, **PINNED}
    old = [await fakes.start(), await fakes.start()]
    load = Load()
    async with weft(*old, **settings) as left, weft(*old, **settings) as right:
        async with load.on(left, right):
            await load.more(50)
            for name, url in zip(("r0", "r1"), old, strict=True):
                new = await fakes.start()
                assert (await post(left, "", url=new)).status_code == 201
                await load.more(50)
                assert (await post(right, f"/{name}/drain", drain_s=1)).status_code == 200
                await load.more(50)
                await eventually(lambda name=name: is_safe(left, name))
                assert (await left.client.delete(f"/weft/replicas/{name}")).status_code == 200
                # The operator stops the machine at once.
                fakes.kill(url)
                load.replicas.clear()
                await load.more(100)
                assert name not in load.replicas
        assert load.failed == []
        assert load.calls >= 400
        await until(lambda: not left.in_flight() and not right.in_flight())
        state = (await left.client.get("/weft/state")).json()
        assert state["table"]["violations"] == []
        assert state["table"]["in_flight"] == {}
        homes = await left.parts.table.homes()
        assert sum(homes.values()) == (await left.parts.table.counts()).alive


async def test_a_replica_that_is_killed_while_it_drains_fails_only_its_own_calls(
    redis: RedisServer, fakes: Fakes, weft: Any, until: Any
) -> None:
    settings = {"redis_url": redis.url, "health_interval_s": 0.2, "lost_after_s": 0.5, **PINNED}
    urls = [await fakes.start() for _ in range(3)]
    load = Load()
    async with weft(*urls, **settings) as left, weft(*urls, **settings) as right:
        async with load.on(left, right):
            await load.more(50)
            await post(left, "/r0/drain", drain_s=600)
            await load.more(20)
            fakes.kill(urls[0])
            await until(
                lambda: all(each.parts.registry["r0"].circuit.dead for each in (left, right))
            )
            broken = len(load.failed)
            await load.more(200)
        # A call that the replica had read must not be sent again. All others succeed.
        assert len(load.failed) == broken <= 12
        assert all("replica_closed" in each or "replica_lost" in each for each in load.failed)
        await eventually(lambda: is_safe(left, "r0"))
        assert (await right.client.delete("/weft/replicas/r0")).status_code == 200
        assert (await left.parts.table.count()) == {}
