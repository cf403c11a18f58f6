"""Replicas that are added, drained and removed while a gateway serves calls."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytestmark = [pytest.mark.system, pytest.mark.anyio]

# Every call is long, so that programs have homes.
PINNED = {"balancer": "locality", "locality_threshold_tokens": 0}


class Streams:
    """A script whose streams end after `go` is set."""

    def __init__(self) -> None:
        self.go = asyncio.Event()

    async def __call__(self, wire: Any, request: Any) -> None:
        await wire.stream(b"data: 1\n\n", end=False)
        await self.go.wait()
        await wire.pieces(b"data: [DONE]\n\n")


def name_of(stub: Any) -> str:
    return str(stub.url.removeprefix("http://"))


async def member(gateway: Any, name: str) -> dict[str, Any]:
    listed = (await gateway.client.get("/weft/replicas")).json()["replicas"]
    (found,) = [each for each in listed if each["name"] == name]
    return dict(found)


async def post(gateway: Any, path: str, body: Any = None) -> Any:
    sent = {} if body is None else {"json": body}
    return await gateway.client.post(f"/weft/replicas{path}", **sent)


async def served_by(gateway: Any, program: str = "", **options: Any) -> str:
    headers = {"x-weft-program": program} if program else {}
    got = await gateway.call(headers=headers, **options)
    assert got.status_code == 200, got.text
    return str(got.headers["x-weft-replica"])


async def test_an_added_replica_takes_calls(engine: Any, weft: Any) -> None:
    async with engine() as stub, weft() as gateway:
        assert (await gateway.call()).status_code == 503
        got = await post(gateway, "", {"url": f"{stub.url}/v1"})
        assert got.status_code == 201
        added = got.json()
        assert (added["name"], added["url"]) == (name_of(stub), stub.url)
        assert (added["state"], added["models"]) == ("serving", ["tiny"])
        assert added["waits_for"] == ["it does not drain"]
        assert await served_by(gateway) == name_of(stub)
        listed = (await gateway.client.get("/v1/models")).json()["data"]
        assert [card["id"] for card in listed] == ["tiny"]


async def test_adding_a_replica_twice_changes_nothing(engine: Any, weft: Any) -> None:
    async with engine() as stub, weft(stub) as gateway:
        # The settings name it r0.
        for body in (
            {"url": stub.url},
            {"url": stub.url + "/v1/"},
            {"url": stub.url, "name": "r0"},
        ):
            got = await post(gateway, "", body)
            assert (got.status_code, got.json()["name"]) == (200, "r0")
        got = await post(gateway, "", {"url": stub.url, "name": "other"})
        assert (got.status_code, got.json()["error"]["code"]) == (409, "replica_exists")
        got = await post(gateway, "", {"url": "http://127.0.0.1:9", "name": "r0"})
        assert (got.status_code, got.json()["error"]["code"]) == (409, "replica_exists")
        assert len((await gateway.client.get("/weft/replicas")).json()["replicas"]) == 1


async def test_an_unreachable_replica_joins_when_it_is_healthy(
    engine: Any, weft: Any, until: Any
) -> None:
    async with engine(healthy=False) as stub, weft(health_interval_s=0.05) as gateway:
        got = await post(gateway, "", {"url": stub.url})
        assert (got.status_code, got.json()["state"]) == (201, "down")
        assert (await gateway.call()).status_code == 503
        stub.healthy = True
        await until(lambda: gateway.parts.registry.able())
        assert (await member(gateway, name_of(stub)))["state"] == "serving"
        assert await served_by(gateway) == name_of(stub)


async def test_a_drain_keeps_homes_and_streams_and_takes_no_new_programs(
    engine: Any, weft: Any, until: Any
) -> None:
    script = Streams()
    async with engine(script=script) as old, engine() as new, weft(old, **PINNED) as gateway:
        streams = [
            asyncio.create_task(
                gateway.call(body={"stream": True}, headers={"x-weft-program": f"p{number}"})
            )
            for number in range(3)
        ]
        await until(lambda: len(old.requests) == 3)
        assert (await post(gateway, "", {"url": new.url, "name": "r1"})).status_code == 201
        drained = (await post(gateway, "/r0/drain", {"drain_s": 600})).json()
        assert (drained["state"], drained["calls_in_flight"], drained["homes"]) == (
            "draining",
            3,
            3,
        )
        assert not drained["safe_to_delete"]
        assert "3 calls in flight" in drained["waits_for"]
        # New programs go elsewhere, and programs keep their home.
        assert {await served_by(gateway, f"new{number}") for number in range(4)} == {"r1"}
        script.go.set()
        for each in streams:
            got = await each
            assert got.text == "data: 1\n\ndata: [DONE]\n\n"
        assert await served_by(gateway, "p0", body={"stream": True}) == "r0"
        found = await member(gateway, "r0")
        assert found["waits_for"] == ["home of 3 programs for 600 s at most"]
        # The time is over: programs move with their next call.
        await post(gateway, "/r0/drain", {"drain_s": 0})
        found = await member(gateway, "r0")
        assert (found["homes"], found["safe_to_delete"]) == (3, True)
        assert await served_by(gateway, "p0") == "r1"
        assert (await member(gateway, "r0"))["homes"] == 2
        assert (await gateway.client.delete("/weft/replicas/r0")).json()["removed"] is True
        assert {await served_by(gateway, f"p{number}") for number in range(3)} == {"r1"}


async def test_a_resumed_replica_takes_all_calls_again(engine: Any, weft: Any) -> None:
    async with engine() as one, engine() as two, weft(one, two) as gateway:
        await post(gateway, "/r0/drain")
        assert {await served_by(gateway) for _ in range(4)} == {"r1"}
        health = (await gateway.client.get("/health")).json()["replicas"]
        assert [each["draining"] for each in health] == [True, False]
        resumed = (await post(gateway, "/r0/resume")).json()
        assert (resumed["state"], resumed["homes_until"]) == ("serving", None)
        assert {await served_by(gateway) for _ in range(4)} == {"r0", "r1"}


async def test_a_serving_replica_is_removed_only_by_force(
    engine: Any, weft: Any, until: Any
) -> None:
    script = Streams()
    async with engine(script=script) as one, engine() as two, weft(one, two, **PINNED) as gateway:
        gateway.parts.members.keep_s = 0.0
        stream = asyncio.create_task(
            gateway.call(body={"stream": True}, headers={"x-weft-program": "p"})
        )
        await until(lambda: one.requests or two.requests)
        name = "r0" if one.requests else "r1"
        script.go.set()
        await stream
        got = await gateway.client.delete(f"/weft/replicas/{name}")
        assert (got.status_code, got.json()["error"]["code"]) == (409, "replica_in_use")
        assert "it does not drain" in got.json()["error"]["message"]
        got = await gateway.client.delete(f"/weft/replicas/{name}?force=true")
        assert got.status_code == 200
        assert await served_by(gateway, "p") != name


async def test_a_removed_replica_finishes_its_calls_and_leaves_nothing(
    engine: Any, weft: Any, until: Any
) -> None:
    script = Streams()
    async with engine(script=script) as old, engine() as new, weft(old) as gateway:
        parts = gateway.parts
        parts.members.keep_s = 0.0
        stream = asyncio.create_task(gateway.call(body={"stream": True}))
        await until(lambda: old.requests)
        await post(gateway, "", {"url": new.url, "name": "r1"})
        await gateway.client.delete("/weft/replicas/r0?force=true")
        assert await served_by(gateway) == "r1"
        checks = old.connections
        script.go.set()
        assert (await stream).text == "data: 1\n\ndata: [DONE]\n\n"
        await until(lambda: not parts.registry.removed)
        await parts.health.check_all()
        assert old.connections == checks
        # The connection of the call. Idle connections of health checks close by themselves.
        await until(lambda: old.closed_connections)
        shown = (await gateway.client.get("/metrics")).text
        assert 'replica="r1"' in shown
        assert 'replica="r0"' not in shown
        assert "r0" not in parts.registry.prefixes._held
        assert "r0" not in parts.table.in_flight()
        # The same name can be used again.
        assert (await post(gateway, "", {"url": old.url, "name": "r0"})).status_code == 201
        assert {await served_by(gateway, body={"stream": True}) for _ in range(4)} == {"r0", "r1"}


async def test_the_last_replica_of_a_model_is_drained_only_by_force(engine: Any, weft: Any) -> None:
    async with engine() as one, engine(models=("tiny", "big")) as two, weft(one, two) as gateway:
        got = await post(gateway, "/r1/drain")
        assert (got.status_code, got.json()["error"]["code"]) == (409, "last_replica")
        assert "big" in got.json()["error"]["message"]
        assert (await post(gateway, "/r0/drain")).status_code == 200
        assert (await post(gateway, "/r1/drain?force=true")).status_code == 200
        assert (await gateway.call()).status_code == 503


async def test_a_stored_answer_outlives_its_replica(engine: Any, weft: Any) -> None:
    async with engine() as one, engine() as two, weft(one, two) as gateway:
        first = await gateway.call("/v1/responses", body={"input": "x"})
        name = first.headers["x-weft-replica"]
        await post(gateway, f"/{name}/drain", {"drain_s": 0})
        assert (await member(gateway, name))["safe_to_delete"]
        assert (await gateway.client.delete(f"/weft/replicas/{name}")).status_code == 200
        again = {"input": "y", "previous_response_id": "resp_1"}
        assert await served_by(gateway, path="/v1/responses", body=again) != name
        got = await gateway.client.get("/v1/responses/resp_1")
        assert got.json()["id"] == "resp_1"


async def test_a_background_response_keeps_its_replica(engine: Any, weft: Any, until: Any) -> None:
    async def queued(wire: Any, request: Any) -> None:
        await wire.plain({"id": "resp_1", "status": "queued"})

    async with (
        engine(script=queued) as one,
        engine(script=queued) as two,
        weft(one, two) as gateway,
    ):
        got = await gateway.call("/v1/responses", body={"input": "x", "background": True})
        name = got.headers["x-weft-replica"]
        stub = one if name == "r0" else two
        stub.canned["/v1/responses/resp_1"] = {"id": "resp_1", "status": "in_progress"}
        drained = (await post(gateway, f"/{name}/drain", {"drain_s": 0})).json()
        assert drained["waits_for"] == ["a response is generated in the background"]
        await until(lambda: stub.other)
        assert not (await member(gateway, name))["safe_to_delete"]
        stub.canned["/v1/responses/resp_1"] = {"id": "resp_1", "status": "completed"}
        await until(lambda: not gateway.parts.background.replicas())
        assert (await member(gateway, name))["safe_to_delete"]


async def test_requests_that_no_gateway_knows_keep_their_replica(engine: Any, weft: Any) -> None:
    running = (
        'vllm:num_requests_running{engine="0"} 1.0\nvllm:num_requests_waiting{engine="0"} 1.0\n'
    )
    async with engine(metrics=running) as one, engine() as two, weft(one, two) as gateway:
        drained = (await post(gateway, "/r0/drain", {"drain_s": 0})).json()
        assert drained["waits_for"] == ["2 requests in its engine"]
        assert (await gateway.client.delete("/weft/replicas/r0")).status_code == 409
        one.metrics = running.replace("1.0", "0.0")
        assert (await gateway.client.delete("/weft/replicas/r0")).status_code == 200


async def test_a_replica_that_dies_while_it_drains_is_safe_to_delete(
    engine: Any, weft: Any, until: Any
) -> None:
    async with (
        engine() as old,
        engine() as new,
        weft(old, **PINNED, health_interval_s=0.05, lost_after_s=0.1) as gateway,
    ):
        await served_by(gateway, "p")
        await post(gateway, "", {"url": new.url, "name": "r1"})
        await post(gateway, "/r0/drain", {"drain_s": 600})
        assert not (await member(gateway, "r0"))["safe_to_delete"]
        old.refuse()
        await until(lambda: gateway.parts.registry["r0"].circuit.dead)
        found = await member(gateway, "r0")
        assert (found["homes"], found["healthy"], found["safe_to_delete"]) == (1, False, True)
        assert await served_by(gateway, "p") == "r1"


async def test_health_is_no_replica_while_all_replicas_drain(engine: Any, weft: Any) -> None:
    async with engine() as one, engine() as two, weft(one, two) as gateway:

        async def answers() -> list[tuple[int, str]]:
            found = [await gateway.client.get(path) for path in ("/health", "/ready")]
            return [(got.status_code, got.json()["status"]) for got in found]

        await post(gateway, "/r0/drain")
        assert await answers() == [(200, "ok")] * 2
        await post(gateway, "/r1/drain?force=true")
        assert (await gateway.call()).status_code == 503
        assert await answers() == [(503, "no_replica")] * 2
        await post(gateway, "/r0/resume")
        assert (await gateway.call()).status_code == 200
        assert await answers() == [(200, "ok")] * 2
