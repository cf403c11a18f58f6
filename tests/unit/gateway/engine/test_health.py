"""Health checks with answers that no healthy server gives."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import respx
from support.waiting import DEADLINE_S
from weft_gateway.engine.engine_request import ReplicaKind
from weft_gateway.engine.fetch import EngineClient
from weft_gateway.engine.health import HealthLoop
from weft_gateway.engine.pool import Timeouts, Upstream
from weft_gateway.engine.registry import Registry, Replica
from weft_gateway.model import PromptPrefix
from weft_gateway.policies.costs import EngineCosts, StepCosts

pytestmark = pytest.mark.anyio

URL = "http://engine"
CARD = {"id": "m", "owned_by": "vllm"}


async def checked(router: respx.Router, rounds: int = 1, secret: str = "") -> Replica:
    registry = Registry({"r0": URL}, Timeouts(1, 1, 1), api_key="sk-replica")
    async with httpx.AsyncClient(transport=httpx.MockTransport(router.async_handler)) as client:
        loop = HealthLoop(registry, EngineClient(client, secret), 1.0)
        for _ in range(rounds):
            await loop.check_all()
    return registry["r0"]


def engine(**statuses: int) -> respx.Router:
    router = respx.Router(assert_all_called=False)
    router.get(f"{URL}/health").respond(statuses.get("health", 200))
    router.get(f"{URL}/v1/models").respond(statuses.get("models", 200), json={"data": [CARD]})
    router.get(f"{URL}/weft/state").respond(statuses.get("weft", 200), json={"weft": {}})
    router.get(f"{URL}/metrics").respond(404)
    return router


CACHE = 'vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="3000"} 1.0\n'


async def test_the_cache_size_of_vllm_without_the_plugin_is_read_from_its_metrics() -> None:
    router = engine(weft=404)
    answers = [httpx.Response(200, text=CACHE), httpx.ReadTimeout("late"), httpx.Response(500)]
    router.get(f"{URL}/metrics").side_effect = answers
    assert (await checked(router)).cache_tokens == 48_000
    # A late answer changes nothing; an error means that the metrics are gone.
    router.get(f"{URL}/metrics").side_effect = answers
    assert (await checked(router, rounds=16)).cache_tokens == 48_000
    router.get(f"{URL}/metrics").side_effect = answers
    assert (await checked(router, rounds=31)).cache_tokens == 0


async def test_the_cache_size_of_an_engine_with_the_plugin_is_not_requested() -> None:
    router = engine()
    route = router.get(f"{URL}/metrics").respond(200, text=CACHE)
    assert (await checked(router)).cache_tokens == 0
    assert not route.called


def stock(**options: object) -> respx.Router:
    """Return a server that identifies itself as another one than vLLM."""
    router = engine(weft=404)
    card = {"id": "m", "owned_by": "llamacpp"} | options
    router.get(f"{URL}/v1/models").respond(200, json={"data": [card]})
    return router


@pytest.mark.parametrize("status", [404, 405, 501])
async def test_server_that_names_itself_is_stock(status: int) -> None:
    router = stock()
    router.get(f"{URL}/weft/state").respond(status)
    assert (await checked(router)).kind is ReplicaKind.STOCK


@pytest.mark.parametrize("status", [200, 301, 401, 403, 429, 500, 503])
@pytest.mark.parametrize("owner", ["vllm", "llamacpp", None])
async def test_replica_without_an_identity_may_be_vllm(
    owner: str | None, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    router = stock(owned_by=owner)
    router.get(f"{URL}/weft/state").respond(status, text="<html>")
    replica = await checked(router, rounds=40)
    is_vllm = owner == "vllm" and status in (301, 401, 403, 429)
    assert replica.kind is (ReplicaKind.VLLM if is_vllm else ReplicaKind.UNKNOWN)
    records = [r for r in caplog.records if "does not identify itself" in r.message]
    assert [r.levelname for r in records] == ([] if is_vllm else ["WARNING"])


@pytest.mark.parametrize("card", [{}, {"owned_by": ""}, {"owned_by": ["x"]}])
async def test_server_without_an_owner_may_be_vllm(card: dict[str, object]) -> None:
    router = engine(weft=404)
    router.get(f"{URL}/v1/models").respond(200, json={"data": [{"id": "m", **card}]})
    assert (await checked(router)).kind is ReplicaKind.UNKNOWN


@pytest.mark.parametrize("status", [500, 503])
async def test_kind_is_kept_if_a_probe_fails(status: int) -> None:
    router = stock()
    answers = [httpx.Response(404), *[httpx.Response(status)] * 30]
    router.get(f"{URL}/weft/state").side_effect = answers
    assert (await checked(router, rounds=20)).kind is ReplicaKind.STOCK


async def test_kind_is_unknown_after_a_restart() -> None:
    router = stock()
    answers = [httpx.Response(200), httpx.ConnectError("gone"), httpx.Response(200)]
    router.get(f"{URL}/health").mock(side_effect=answers)
    states = [httpx.Response(404), *[httpx.Response(500)] * 30]
    router.get(f"{URL}/weft/state").side_effect = states
    assert (await checked(router, rounds=3)).kind is ReplicaKind.UNKNOWN


STATES = [b'["weft"]', b"[]", b'"weft"', b"7", b"null", b"{", b"", b"[" * 900, b'{"weft":[]}']


@pytest.mark.parametrize("state", STATES)
async def test_invalid_state_does_not_stop_the_checks(state: bytes) -> None:
    router = engine()
    good = httpx.Response(200, json={"weft": {}})
    bad = httpx.Response(200, content=state)
    router.get(f"{URL}/weft/state").side_effect = [bad, good, *[bad] * 30]
    replica = await checked(router, rounds=20)
    assert replica.circuit.healthy
    assert replica.kind is ReplicaKind.WEFT


async def test_endless_answer_times_out_without_delaying_other_checks() -> None:
    class Endless(httpx.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            while True:
                await asyncio.sleep(0.01)
                yield b" "

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.host == "drips":
            return httpx.Response(200, stream=Endless())
        return httpx.Response(200, json={"data": [CARD], "weft": {}})

    registry = Registry({"r0": "http://drips", "r1": URL}, Timeouts(1, 1, 1))
    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        checks = HealthLoop(registry, EngineClient(client), 1.0, within_s=0.1)
        async with asyncio.timeout(DEADLINE_S):
            await checks.check_all()
            # A stall of the machine may be longer than the time of a check.
            while not registry["r1"].circuit.healthy:
                await checks.check_all()
    assert registry["r0"].circuit.last_error == "health_check: ReadTimeout"
    assert registry["r1"].circuit.healthy


@pytest.mark.parametrize(
    ("failure", "weft", "gone"),
    [
        (httpx.ConnectError("refused"), 200, True),
        (httpx.ConnectTimeout("no answer"), 200, False),
        (httpx.ReadTimeout("busy"), 200, False),
        (httpx.ReadError("reset"), 200, False),
        (httpx.Response(503), 200, True),  # vLLM: its engine process has died.
        (httpx.Response(500), 200, False),
        (httpx.Response(503), 404, False),  # Other servers answer 503 if they are busy.
    ],
)
async def test_replica_seems_gone_after_certain_failures(
    failure: httpx.Response | Exception, weft: int, gone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[bool] = []
    monkeypatch.setattr(Upstream, "seems_gone", lambda *_: said.append(True))
    monkeypatch.setattr(Upstream, "is_there", lambda *_: said.append(False))
    router = engine() if weft == 200 else stock()
    router.get(f"{URL}/health").side_effect = [httpx.Response(200), failure]
    await checked(router, rounds=2)
    assert said == [False, gone]


async def test_server_without_a_health_route_is_healthy() -> None:
    assert (await checked(engine(health=404))).circuit.healthy


@pytest.mark.parametrize("status", [500, 503])
async def test_engine_that_reports_an_error_is_unhealthy(status: int) -> None:
    replica = await checked(engine(health=status))
    assert not replica.circuit.healthy
    assert replica.served == frozenset()


async def test_checks_send_the_key_and_the_secret() -> None:
    router = engine()
    await checked(router, secret="shh")
    for call in router.calls:
        headers = call.request.headers
        assert headers["authorization"] == "Bearer sk-replica"
        assert ("x-weft-secret" in headers) == (call.request.url.path == "/weft/state")


async def test_failed_probe_is_repeated_and_keeps_the_known_kind() -> None:
    router = engine()
    states = router.get(f"{URL}/weft/state")
    states.side_effect = [httpx.ReadTimeout("busy"), httpx.Response(200, json={"weft": {}})]
    assert (await checked(router, rounds=2)).kind is ReplicaKind.WEFT
    router = engine()
    states = router.get(f"{URL}/weft/state")
    states.side_effect = [httpx.Response(200, json={"weft": {}}), *[httpx.Response(503)] * 30]
    assert (await checked(router, rounds=20)).kind is ReplicaKind.WEFT


async def test_models_are_not_fetched_with_each_check() -> None:
    router = engine()
    await checked(router, rounds=5)
    paths = [call.request.url.path for call in router.calls]
    assert paths.count("/health") == 5
    assert paths.count("/v1/models") == 1


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize(
    ("secret", "problem"),
    [("", "is not set on the gateway"), ("wrong", "differs from the replica's value")],
)
async def test_refused_secret_is_logged_once(
    status: int, secret: str, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    replica = await checked(engine(weft=status), rounds=40, secret=secret)
    assert (replica.kind, replica.refuses) == (ReplicaKind.VLLM, {"engine_secret"})
    (record,) = (r for r in caplog.records if "secret" in r.message.lower())
    assert record.levelname == "WARNING"
    assert "r0 at engine" in record.message
    assert f"WEFT_ENGINE_SECRET {problem}" in record.message
    assert "wrong" not in record.message


@pytest.mark.parametrize("status", [401, 403])
async def test_refused_key_is_logged_once_and_shown_in_the_replicas_state(
    status: int, caplog: pytest.LogCaptureFixture
) -> None:
    replica = await checked(engine(models=status), rounds=20)
    assert replica.refuses == {"api_key"}
    assert replica.served == frozenset()
    (record,) = (r for r in caplog.records if "KEY" in r.message)
    assert record.levelname == "WARNING"
    assert "r0 at engine" in record.message
    assert "WEFT_REPLICA_API_KEY differs from the replica's value" in record.message
    assert "sk-replica" not in caplog.text


async def test_accepted_key_clears_the_refusal() -> None:
    router = engine()
    answers = [httpx.Response(401), httpx.Response(200, json={"data": [CARD]})]
    router.get(f"{URL}/v1/models").side_effect = answers
    replica = await checked(router, rounds=2)
    assert (replica.refuses, replica.served) == (frozenset(), {"m"})


COSTS = dict.fromkeys(
    ("step_s", "weights_s", "prefill_token_s", "decode_sequence_s", "context_token_s"), 0.5
)
STATE = {"costs": COSTS, "slots": 8, "kv_blocks": 10, "block_tokens": 16}


async def test_second_refusal_of_a_secret_is_logged_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    router = engine()
    states = router.get(f"{URL}/weft/state")
    # With step costs, the state is not read again before the next round of learning.
    known = {"weft": {}, "engines": [STATE]}
    refused, taken = httpx.Response(403), httpx.Response(200, json=known)
    states.side_effect = [refused, refused, taken, refused, refused]
    assert (await checked(router, rounds=15 * 5)).kind is ReplicaKind.VLLM
    assert sum("WEFT_ENGINE_SECRET" in record.message for record in caplog.records) == 2


async def test_restarted_replica_has_an_empty_cache() -> None:
    router = respx.Router(assert_all_called=False)
    router.get(f"{URL}/health").mock(
        side_effect=[httpx.Response(200), httpx.ConnectError("gone"), httpx.Response(200)]
    )
    router.get(f"{URL}/v1/models").respond(200, json={"data": [CARD]})
    router.get(f"{URL}/weft/state").respond(404)
    router.get(f"{URL}/metrics").respond(404)
    registry = Registry({"r0": URL}, Timeouts(1, 1, 1), cache_tokens=9000)
    prefix = PromptPrefix((1, 2), 512)
    async with httpx.AsyncClient(transport=httpx.MockTransport(router.async_handler)) as client:
        loop = HealthLoop(registry, EngineClient(client), 1.0)
        await loop.check_all()
        registry.prefixes.sent("r0", prefix)
        await loop.check_all()
        assert not registry["r0"].circuit.healthy
        await loop.check_all()
    assert registry["r0"].circuit.healthy
    assert registry.prefixes.shared(prefix, ["r0", "another"]) is None


async def test_step_costs_of_an_engine_with_the_plugin_are_read_with_each_check() -> None:
    router = engine()
    answers = [{"weft": {}}, {"weft": {}, "engines": [STATE]}, {"weft": {}, "engines": [7]}, {}]
    router.get(f"{URL}/weft/state").side_effect = [
        *[httpx.Response(200, json=answer) for answer in answers],
        httpx.ReadTimeout("late"),
    ]
    read: list[EngineCosts | None] = []
    registry = Registry({"r0": URL}, Timeouts(1, 1, 1))
    async with httpx.AsyncClient(transport=httpx.MockTransport(router.async_handler)) as client:
        loop = HealthLoop(registry, EngineClient(client, ""), 1.0)
        loop.costs = lambda name, costs: read.append(costs)
        for _ in range(5):
            await loop.check_all()
    # The last two answers say nothing about the engine.
    known = EngineCosts(StepCosts(0.5, 0.5, 0.5, 0.5, 0.5, together=8), 160)
    assert read == [None, known, None]
    assert registry["r0"].costs is None
    assert registry["r0"].circuit.healthy


async def test_step_costs_are_read_until_they_are_known() -> None:
    router = engine()
    states = router.get(f"{URL}/weft/state")
    known = {"weft": {}, "engines": [STATE]}
    answers = [httpx.Response(200, json=answer) for answer in ({"weft": {}}, {"weft": {}}, known)]
    states.side_effect = answers
    replica = await checked(router, rounds=5)
    assert replica.costs == EngineCosts(StepCosts(0.5, 0.5, 0.5, 0.5, 0.5, together=8), 160)
    assert states.call_count == 3


@pytest.mark.parametrize("engine_follows", [False, True])
async def test_a_gateway_gets_no_calls(engine_follows: bool, caplog: Any) -> None:
    router = engine()
    gateway = httpx.Response(503, json={"table": {"state": "ok"}, "replicas": []})
    last = httpx.Response(200) if engine_follows else gateway
    router.get(f"{URL}/health").side_effect = [gateway, gateway, last]
    replica = await checked(router, rounds=3)
    assert replica.circuit.alive == replica.circuit.healthy == engine_follows
    assert replica.kind is (ReplicaKind.WEFT if engine_follows else ReplicaKind.GATEWAY)
    said = [r.levelname for r in caplog.records if "is a Weft gateway" in r.message]
    assert said == ["ERROR"]
