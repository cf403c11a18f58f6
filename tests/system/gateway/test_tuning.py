"""Tuning over real sockets: the choice of a leader among real processes, and a failing replay."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx
import pytest
from support.redis_server import RedisServer
from weft_bench.stack.processes import free_port
from weft_engine.wire import REPORT_HEADER, CallReport
from weft_gateway.model.options import Tuning
from weft_gateway.tuning import triggers
from weft_gateway.tuning.replay.trace import Limits

pytestmark = [pytest.mark.system, pytest.mark.anyio]

FAST, SLOW = 1e-4, 4e-4
# A gateway whose windows are short. A window of the defaults lasts 100 s.
GATEWAY = """
from dataclasses import replace
from weft_gateway.cli import main
from weft_gateway.model.options import Tuning
from weft_gateway.tuning import triggers
triggers.RULES[Tuning.SLOWDOWN] = replace(
    triggers.RULES[Tuning.SLOWDOWN], window_s=1.0, least=4, gain=2.0
)
main()
"""


def answering(token_s: float) -> dict[str, Any]:
    """Options of an engine with this time per token, whose order cannot be tuned."""
    costs = {
        "step_s": 0.001, "weights_s": 100 * token_s, "prefill_token_s": token_s,
        "decode_sequence_s": token_s, "context_token_s": 0.0, "samples": 99, "relative_error": 0.02,
    }  # fmt: skip
    limits = {"slots": 4, "step_tokens": 2048, "kv_blocks": 1000, "block_tokens": 16}
    state = {"policy": "fcfs", "options": {}, "costs": costs, **limits}

    async def script(wire: Any, request: Any) -> None:
        report = CallReport(
            request.headers["x-weft-call"], prompt_tokens=1000, output_tokens=50,
            service_s=1050 * token_s, finished=True,
        )  # fmt: skip
        await wire.plain({}, headers={REPORT_HEADER: report.to_json()})

    return {"script": script, "canned": {"/weft/state": {"weft": {}, "engines": [state]}}}


async def play(client: httpx.AsyncClient, programs: int) -> None:
    """Play programs of one call, which end with it."""
    for number in range(programs):
        headers = {"x-dynamo-session-id": f"p{number}", "x-dynamo-session-final": "true"}
        body = {"model": "tiny", "messages": [{"role": "user", "content": "Hello"}]}
        answer = await client.post("/v1/chat/completions", json=body, headers=headers)
        assert answer.status_code == 200


async def reached(check: Any, what: str) -> Any:
    """Wait until an asynchronous check returns a true value, and return it."""
    async with asyncio.timeout(120):
        while True:
            with contextlib.suppress(httpx.TransportError):
                if value := await check():
                    return value
            await asyncio.sleep(0.05)
    raise AssertionError(what)


@contextlib.asynccontextmanager
async def process(redis: RedisServer, *urls: str) -> AsyncIterator[tuple[Any, httpx.AsyncClient]]:
    """Run a gateway in a process that tunes."""
    port = free_port()
    replicas = [part for n, url in enumerate(urls) for part in ("--replica", f"r{n}={url}")]
    running = await asyncio.create_subprocess_exec(
        sys.executable, "-c", GATEWAY, "serve", "--port", str(port), "--redis", redis.url,
        "--balancer", "work", *replicas,
        env={**os.environ, "WEFT_TUNING": "slowdown"},
    )  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    try:
        async with httpx.AsyncClient(base_url=url, timeout=20, trust_env=False) as client:
            yield running, client
    finally:
        with contextlib.suppress(ProcessLookupError):
            running.kill()
        await running.wait()


async def tuning(client: httpx.AsyncClient) -> dict[str, Any]:
    found: dict[str, Any] = (await client.get("/weft/tuning")).json()
    return found


async def test_another_gateway_tunes_when_the_leader_dies(redis: RedisServer, engine: Any) -> None:
    async with (
        engine(**answering(FAST)) as fast,
        engine(**answering(SLOW)) as slow,
        process(redis, fast.url, slow.url) as (one, left),
        process(redis, fast.url, slow.url) as (two, right),
    ):

        async def leaders() -> list[httpx.AsyncClient]:
            states = [(client, await tuning(client)) for client in (left, right)]
            return [client for client, state in states if state["tunes"]]

        (leader,) = await reached(leaders, "one gateway tunes")
        other = right if leader is left else left
        await reached(lambda: _replayed(leader), "the leader replays a window")
        # Gains of at least 200% do not exist, so the replay changes nothing.
        assert (await tuning(leader))["decision"]["action"] == "none"
        await play(other, 8)
        state = await tuning(other)
        assert (state["tunes"], state["decision"]) == (False, None)

        dead = one if leader is left else two
        dead.kill()
        await reached(lambda: _tunes(other), "the other gateway tunes")
        await reached(lambda: _replayed(other), "it replays a window")
        text = (await other.get("/metrics")).text
        assert "weft_tuning_leader 1.0" in text
        assert "weft_tuning_failing 0.0" in text


async def _replayed(client: httpx.AsyncClient) -> bool:
    """Play programs. Whether a replay has ended."""
    await play(client, 4)
    lines = (await client.get("/metrics")).text.splitlines()
    (used,) = [line for line in lines if line.startswith("weft_tuning_cpu_seconds_total ")]
    return float(used.split()[1]) > 0


async def _tunes(client: httpx.AsyncClient) -> Any:
    return (await tuning(client))["tunes"]


async def test_a_replay_that_crashes_keeps_alpha_and_is_in_the_metric_of_the_alert(
    engine: Any, weft: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = replace(triggers.RULES[Tuning.SLOWDOWN], window_s=1.0, least=4, gain=2.0)
    monkeypatch.setitem(triggers.RULES, Tuning.SLOWDOWN, rule)
    async with engine(**answering(FAST)) as fast, engine(**answering(SLOW)) as slow:
        settings = {"balancer": "work", "tuning": "slowdown", "balancer_alpha": 0.3}
        async with weft(fast, slow, **settings) as gateway:
            client, tuner = gateway.client, gateway.parts.tuning.tuner
            # A megabyte is not enough to replay a call.
            tuner.limits = Limits(memory_bytes=1 << 20)
            await reached(lambda: _tunes(client), "the gateway tunes")
            await reached(lambda: _failing(client), "the tuning fails")
            state = await tuning(client)
            assert state["decision"]["action"] == "failed"
            assert state["values"]["alpha"] == 0.3
            # A process with some memory left reports the error, another one only has a status.
            reported = "the replay failed: MemoryError" in state["failing"]
            assert reported or "the replay ended with status" in state["failing"]
            reason = "memory" if reported else "crash"
            text = (await client.get("/metrics")).text
            # The alert WeftTuningFails fires while this metric is above 0.
            assert "weft_tuning_failing 1.0" in text
            assert f'weft_tuning_failures_total{{reason="{reason}"}}' in text
            assert "weft_tuning_value{" not in text

            tuner.limits = Limits()
            await reached(lambda: _recovered(client), "the next tuning succeeds")
            assert "weft_tuning_failing 0.0" in (await client.get("/metrics")).text


async def _failing(client: httpx.AsyncClient) -> Any:
    await play(client, 4)
    return (await tuning(client))["failing"]


async def _recovered(client: httpx.AsyncClient) -> bool:
    return not await _failing(client)


async def test_gateways_keep_an_alpha_that_redis_has_lost(
    redis: RedisServer, weft: Any, engine: Any
) -> None:
    options = {"redis_url": redis.url, "balancer": "work"}
    async with engine() as stub, weft(stub, **options) as left, weft(stub, **options) as right:

        async def agree() -> bool:
            states = [await tuning(each.client) for each in (left, right)]
            return [state["values"]["alpha"] for state in states] == [1.0, 1.0]

        await left.client.post("/weft/policy", json={"options": {"alpha": 1.0}})
        await reached(agree, "both gateways use the alpha")
        versions = {each.parts.tuning.values._version for each in (left, right)}
        redis.kill()
        redis.start()

        async def restored() -> bool:
            found = {each.parts.tuning.values._version for each in (left, right)}
            return len(found) == 1 and found != versions

        await reached(restored, "both gateways use the values that one has written back")
        assert await agree()
