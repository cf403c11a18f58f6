"""Responses that engines store (Responses API), through two gateways on one Redis."""

import asyncio
import json
from typing import Any

import pytest
from support.redis_server import RedisServer

KEYS = ("own", "sk-other")

pytestmark = [pytest.mark.system, pytest.mark.anyio]

OTHER = {"authorization": "Bearer sk-other"}


class StoringEngine:
    """The script of an engine that stores its responses and does not know tenants."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.answers: dict[str, Any] = {}

    async def __call__(self, wire: Any, request: Any) -> None:
        _, _, rest = request.target.partition("/v1/responses")
        if rest:
            await self._lookup(wire, request.method, rest.split("/")[1])
            return
        body = request.json
        before = body.get("previous_response_id")
        if before is not None and before not in self.answers:
            await wire.plain({"error": {"message": "not here"}}, "404 Not Found")
            return
        answer = {"id": f"resp_{self.name}{len(self.answers)}", "after": before}
        self.answers[answer["id"]] = answer
        if body.get("stream"):
            event = {"type": "response.created", "response": answer}
            await wire.stream(
                b"event: response.created\ndata: " + json.dumps(event).encode() + b"\n\n",
                b"event: response.completed\ndata: {}\n\n",
            )
        else:
            await wire.plain(answer)

    async def _lookup(self, wire: Any, method: str, name: str) -> None:
        found = self.answers.get(name)
        if found is None:
            await wire.plain({"error": {"message": "not here"}}, "404 Not Found")
            return
        if method == "DELETE":
            del self.answers[name]
        await wire.plain(found)


async def ask(gateway: Any, previous: str | None = None, **extra: Any) -> Any:
    body = {"input": "x"} | ({"previous_response_id": previous} if previous else {}) | extra
    return await gateway.call("/v1/responses", body=body)


@pytest.mark.parametrize("balancer", ["round_robin", "least_used", "locality"])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_chain_stays_on_the_replica_of_its_responses_through_any_gateway(
    balancer: str, stream: bool, redis: RedisServer, engine: Any, weft: Any
) -> None:
    async with (
        engine(script=StoringEngine("a")) as one,
        engine(script=StoringEngine("b")) as two,
        weft(one, two, redis_url=redis.url, balancer=balancer) as left,
        weft(one, two, redis_url=redis.url, balancer=balancer) as right,
    ):
        for _ in range(3):
            got = await ask(left, stream=stream)
            places, programs = [got.headers["x-weft-replica"]], [got.headers["x-weft-program"]]
            for gateway in (right, left, right):
                name = _id(got)
                got = await ask(gateway, name)
                assert (got.status_code, got.json()["after"]) == (200, name)
                places.append(got.headers["x-weft-replica"])
                programs.append(got.headers["x-weft-program"])
            assert len(set(places)) == 1
            assert len(set(programs)) == 1


def _id(answer: Any) -> str:
    if answer.headers["content-type"].startswith("text/event-stream"):
        frame = answer.text.split("\n\n")[0]
        return str(json.loads(frame.partition("data: ")[2])["response"]["id"])
    return str(answer.json()["id"])


async def test_a_stored_response_is_read_changed_and_deleted_on_its_replica(
    redis: RedisServer, engine: Any, weft: Any
) -> None:
    async with (
        engine(script=StoringEngine("a")) as one,
        engine(script=StoringEngine("b")) as two,
        weft(one, two, redis_url=redis.url) as left,
        weft(one, two, redis_url=redis.url) as right,
    ):
        for _ in range(2):
            made = await ask(left)
            path = f"/v1/responses/{made.json()['id']}"
            for got in (
                await right.client.get(path),
                await right.client.get(f"{path}/input_items"),
                await right.client.post(f"{path}/cancel"),
                await right.client.delete(path),
            ):
                assert (got.status_code, got.json()) == (200, made.json())
                assert got.headers["x-weft-replica"] == made.headers["x-weft-replica"]
            assert (await right.client.get(path)).status_code == 404
        # Only the replica of each response received these requests.
        targets = [request.target for stub in (one, two) for request in stub.requests]
        assert len([target for target in targets if target != "/v1/responses"]) == 8


async def test_responses_of_another_tenant_do_not_exist(engine: Any, weft: Any) -> None:
    async with engine(script=StoringEngine("a")) as stub, weft(stub) as gateway:
        name = (await ask(gateway)).json()["id"]
        asked = len(stub.requests)
        for method, path in (
            ("GET", name),
            ("DELETE", name),
            ("GET", f"{name}/input_items"),
            ("POST", f"{name}/cancel"),
            ("GET", "resp_of_nobody"),
        ):
            got = await gateway.client.request(method, f"/v1/responses/{path}", headers=OTHER)
            error = got.json()["error"]
            assert (got.status_code, error["code"]) == (404, "response_not_found")
            assert error["type"] == "invalid_request_error"
            assert path.split("/")[0] in error["message"]
        body = {"input": "x", "previous_response_id": name}
        got = await gateway.call("/v1/responses", body=body, headers=OTHER)
        error = got.json()["error"]
        assert (got.status_code, error["code"]) == (400, "previous_response_not_found")
        assert error["param"] == "previous_response_id"
        assert len(stub.requests) == asked
        assert (await ask(gateway, name)).status_code == 200


async def test_a_response_with_store_false_is_not_found(engine: Any, weft: Any) -> None:
    async with engine(script=StoringEngine("a")) as stub, weft(stub) as gateway:
        name = (await ask(gateway, store=False)).json()["id"]
        assert (await gateway.client.get(f"/v1/responses/{name}")).status_code == 404


@pytest.mark.parametrize("stream", [False, True])
async def test_a_response_of_a_dead_replica_is_not_found(
    stream: bool, engine: Any, weft: Any, until: Any
) -> None:
    async with (
        engine(script=StoringEngine("a")) as one,
        engine(script=StoringEngine("b")) as two,
        weft(one, two) as gateway,
    ):
        while (made := await ask(gateway)).headers["x-weft-replica"] != "r0":
            pass
        name, asked = made.json()["id"], len(two.requests)
        one.refuse()
        gateway.parts.registry.suspicion.set()
        await until(lambda: not gateway.parts.registry["r0"].circuit.alive)
        got = await ask(gateway, name, stream=stream)
        error = got.json()["error"]
        assert (got.status_code, error["code"]) == (404, "previous_response_not_found")
        assert error["param"] == "previous_response_id"
        assert name in error["message"]
        assert len(two.requests) == asked
        got = await gateway.client.get(f"/v1/responses/{name}")
        assert (got.status_code, got.json()["error"]["code"]) == (404, "response_not_found")


async def test_a_response_of_a_slow_replica_is_available_after_recovery(
    engine: Any, weft: Any, until: Any
) -> None:
    async with (
        engine(script=StoringEngine("a")) as one,
        engine(script=StoringEngine("b")) as two,
        weft(one, two, connect_timeout_s=0.1, health_interval_s=0.05) as gateway,
    ):
        while (made := await ask(gateway)).headers["x-weft-replica"] != "r0":
            pass
        one.late = asyncio.Event()
        await until(lambda: not gateway.parts.registry["r0"].circuit.alive)
        got = await ask(gateway, made.json()["id"])
        assert (got.status_code, got.json()["error"]["code"]) == (503, "no_replica")
        assert int(got.headers["retry-after"]) > 0
        one.late.set()
        await until(lambda: gateway.parts.registry["r0"].circuit.healthy)
        assert (await ask(gateway, made.json()["id"])).status_code == 200


async def test_a_response_lost_by_a_restarted_replica_is_not_found(engine: Any, weft: Any) -> None:
    storing_engine = StoringEngine("a")
    async with engine(script=storing_engine) as stub, weft(stub) as gateway:
        name = (await ask(gateway)).json()["id"]
        storing_engine.answers.clear()
        got = await ask(gateway, name)
        assert (got.status_code, got.json()["error"]["code"]) == (
            404,
            "previous_response_not_found",
        )


async def test_a_gateway_finds_its_own_responses_during_an_outage(
    redis: RedisServer, engine: Any, weft: Any, until: Any
) -> None:
    async with (
        engine(script=StoringEngine("a")) as one,
        engine(script=StoringEngine("b")) as two,
        weft(one, two, redis_url=redis.url) as left,
        weft(one, two, redis_url=redis.url) as right,
    ):
        first = await ask(left)
        redis.kill()
        second = await ask(left, first.json()["id"])
        assert second.json()["after"] == first.json()["id"]
        assert (await right.call()).status_code == 200  # The gateway notices the outage.
        # A gateway answers 503 for a response that it may not know.
        path = f"/v1/responses/{second.json()['id']}"
        assert (await right.client.get(path)).status_code == 503
        redis.start()
        await until(lambda: not (left.parts.table.local or right.parts.table.local))
        await left.parts.stores.chains.flush()
        assert (await right.client.get(path)).json() == second.json()


async def test_failed_lookups_do_not_exclude_a_replica(engine: Any, weft: Any) -> None:
    """Failed lookups do not count as failures of the replica.

    vLLM drops the connection for `stream=true` on a response that was not created as a background
    stream. Otherwise a client could exclude every replica with three such requests.
    """
    storing_engine = StoringEngine("r0")

    async def script(wire: Any, request: Any) -> None:
        if "stream=true" in request.target:
            wire.writer.close()
        else:
            await storing_engine(wire, request)

    async with engine(script=script) as stub, weft(stub) as gateway:
        name = (await ask(gateway)).json()["id"]
        for _ in range(5):
            broken = await gateway.client.get(f"/v1/responses/{name}?stream=true")
            assert broken.status_code == 502
            assert broken.json()["error"]["code"] == "replica_closed"
        circuit = gateway.parts.registry["r0"].circuit
        assert (circuit.healthy, circuit.failures) == (True, 0)
        assert (await ask(gateway)).status_code == 200


@pytest.mark.parametrize("previous", [{"a": "b" * 70_000}, ["x"], 7])
async def test_a_previous_response_id_must_be_a_string(
    engine: Any, weft: Any, previous: Any
) -> None:
    async with engine(script=StoringEngine("r0")) as stub, weft(stub) as gateway:
        body = {"input": ["x" * 5_000_000], "previous_response_id": previous}
        got = await gateway.call("/v1/responses", body=body)
        assert got.status_code == 400
        assert "must be a string" in got.json()["error"]["message"]
