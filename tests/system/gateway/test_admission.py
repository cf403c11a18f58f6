"""Calls wait in the gateway for the KV cache of an engine without the plugin."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from support.redis_server import RedisServer

KEYS = ("own", "one", "two")

pytestmark = [pytest.mark.system, pytest.mark.anyio]

# 1,600 tokens, 1,440 of them for residents. One program is a resident then, another one a guest.
CACHE = 'vllm:cache_config_info{block_size="16",num_gpu_blocks="100"} 1.0\n'
STOCK: dict[str, Any] = {"weft": False, "metrics": CACHE}
# No test waits for the limit, except where it is set.
LONG: dict[str, Any] = {"admission_wait_s": 3600}


class Answers:
    """A script that answers each call when its gate opens. begun: the calls' models, in order."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self._open: dict[str, asyncio.Event] = {}

    def open(self, *names: str) -> None:
        for name in names:
            self._open.setdefault(name, asyncio.Event()).set()

    async def __call__(self, wire: Any, request: Any) -> None:
        body = request.json
        name = body["messages"][0]["name"]
        self.begun.append(name)
        await self._open.setdefault(name, asyncio.Event()).wait()
        tokens = len(body["messages"][0]["content"]) // 4
        usage = {"prompt_tokens": tokens, "completion_tokens": 20, "total_tokens": tokens + 20}
        await wire.plain({"object": "chat.completion", "choices": [], "usage": usage})


def call(gateway: Any, name: str, tokens: int = 740, key: str = "", **headers: str) -> Any:
    """Start a call of the program `name` with a context of about this many tokens."""
    message = {"role": "user", "name": name, "content": "four" * tokens}
    given = {"x-session-id": name} | headers
    if key:
        given["authorization"] = f"Bearer {key}"
    body = {"messages": [message]}
    return asyncio.ensure_future(gateway.call(headers=given, body=body))


def held(gateway: Any) -> int:
    return sum(one["held"] for one in gateway.parts.gates.state().values())


async def receipt(gateway: Any, answer: Any) -> Any:
    found = await gateway.client.get(f"/v1/receipts/{answer.headers['x-request-id']}")
    return found.json()


async def metrics(gateway: Any) -> str:
    text: str = (await gateway.client.get("/metrics")).text
    return text


def clean(gateway: Any) -> None:
    assert held(gateway) == 0
    assert gateway.parts.gates.violations() == []


async def test_a_call_that_does_not_fit_waits_until_another_one_ends(
    engine: Any, weft: Any, until: Any
) -> None:
    answers = Answers()
    async with engine(script=answers, **STOCK) as stub, weft(stub, **LONG) as gateway:
        first = call(gateway, "a")
        await until(lambda: answers.begun == ["a"])
        second = call(gateway, "b")
        await until(lambda: answers.begun == ["a", "b"])
        third = call(gateway, "c")
        await until(lambda: held(gateway) == 1)
        answers.open("b", "c")
        assert (await second).status_code == (await third).status_code == 200
        answers.open("a")
        assert (await first).status_code == 200
        memory = (await receipt(gateway, await third))["memory"]
        assert memory["programs_ahead"] == 1
        assert memory["memory_tokens"] > 700
        assert memory["text"].startswith("waited ")
        assert (await receipt(gateway, await first))["memory"] is None
        assert 'weft_memory_waits_total{end="fits",replica="r0"} 1.0' in await metrics(gateway)
        clean(gateway)


async def test_no_call_waits_longer_than_the_setting(engine: Any, weft: Any, until: Any) -> None:
    answers = Answers()
    settings = {"admission_wait_s": 0.05}
    async with engine(script=answers, **STOCK) as stub, weft(stub, **settings) as gateway:
        tasks = [call(gateway, name) for name in "abcd"]
        await until(lambda: sorted(answers.begun) == ["a", "b", "c", "d"])
        answers.open(*"abcd")
        await asyncio.gather(*tasks)
        assert 'weft_memory_waits_total{end="late",replica="r0"} ' in await metrics(gateway)
        clean(gateway)


async def test_a_client_that_disconnects_leaves_no_held_call(
    engine: Any, weft: Any, until: Any
) -> None:
    answers = Answers()
    async with engine(script=answers, **STOCK) as stub, weft(stub, **LONG) as gateway:
        tasks = [call(gateway, "a"), call(gateway, "b")]
        await until(lambda: len(answers.begun) == 2)
        left = call(gateway, "c")
        await until(lambda: held(gateway) == 1)
        left.cancel()
        await until(lambda: held(gateway) == 0)
        await until(lambda: gateway.in_flight() == 2)
        answers.open("a", "b")
        await asyncio.gather(*tasks)
        assert answers.begun == ["a", "b"]
        assert 'weft_memory_waits_total{end="left",replica="r0"} 1.0' in await metrics(gateway)
        clean(gateway)


async def test_a_program_that_ends_during_its_call_releases_its_place_with_it(
    engine: Any, weft: Any, until: Any
) -> None:
    answers = Answers()
    async with engine(script=answers, **STOCK) as stub, weft(stub, **LONG) as gateway:
        tasks = [call(gateway, "a")]
        await until(lambda: answers.begun == ["a"])
        tasks += [call(gateway, "b"), call(gateway, "c")]
        await until(lambda: held(gateway) == 1)
        assert (await gateway.client.delete("/v1/sessions/a")).status_code == 200
        assert held(gateway) == 1
        answers.open("a")
        await until(lambda: held(gateway) == 0)
        answers.open("b", "c")
        await asyncio.gather(*tasks)
        clean(gateway)


async def test_the_usage_at_the_end_of_a_stream_counts(engine: Any, weft: Any) -> None:
    async def stream(wire: Any, request: Any) -> None:
        parts = [
            b'data: {"choices":[{"index":0,"delta":{"content":"\\"prompt_tokens\\": 7"}}]}\n\n',
            b'data: {"choices":[],"usage":{"prompt_tokens":1000,"completion_tokens":20}}\n\n',
            b"data: [DONE]\n\n",
        ]
        await wire.stream(*(parts if "stream_options" in request.json else parts[::2]))

    async with engine(script=stream, **STOCK) as stub, weft(stub, **LONG) as gateway:
        body = {"stream": True, "messages": [{"role": "user", "content": "four" * 100}]}
        await gateway.call(headers={"x-session-id": "a"}, body=body)
        assert 90 < gateway.parts.gates.state()["r0"]["kept_tokens"] < 150
        body["stream_options"] = {"include_usage": True}
        await gateway.call(headers={"x-session-id": "a"}, body=body)
        assert gateway.parts.gates.state()["r0"]["kept_tokens"] == 1020
        clean(gateway)


async def test_an_idle_program_that_expires_releases_its_place(
    engine: Any, weft: Any, until: Any
) -> None:
    answers = Answers()
    settings = LONG | {"program_idle_s": 0.3}
    async with engine(script=answers, **STOCK) as stub, weft(stub, **settings) as gateway:
        answers.open("a")
        await call(gateway, "a")
        tasks = [call(gateway, "b"), call(gateway, "c")]
        # No other program ends, and no call.
        await until(lambda: sorted(answers.begun) == ["a", "b", "c"])
        answers.open("b", "c")
        await asyncio.gather(*tasks)
        clean(gateway)


async def test_two_gateways_on_one_redis_use_half_of_the_cache_each(
    tmp_path: Path, engine: Any, weft: Any, until: Any
) -> None:
    redis = RedisServer(tmp_path)
    answers = Answers()
    answers.open("a")
    settings = LONG | {"redis_url": redis.url, "redis_timeout_s": 20.0, "call_lease_s": 4.0}
    try:
        async with engine(script=answers, **STOCK) as stub, weft(stub, **settings) as one:
            async with weft(stub, **settings) as two:
                for gateway in (one, two):
                    await until(lambda gateway=gateway: gateway.parts.members.gateways == 2)
                    await call(gateway, "a", 100)
                    assert gateway.parts.gates.state()["r0"]["cache_tokens"] == 800
            await until(lambda: one.parts.members.gateways == 1)
            await call(one, "a", 100)
            assert one.parts.gates.state()["r0"]["cache_tokens"] == 1600
    finally:
        redis.kill()


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ({"weft": False, "metrics": CACHE}, {"admission": "off"}),
        ({"weft": False, "metrics": ""}, {}),
        ({"weft": True, "metrics": CACHE}, {}),
    ],
)
async def test_other_replicas_and_settings_have_no_admission(
    options: dict[str, Any], settings: dict[str, Any], engine: Any, weft: Any, until: Any
) -> None:
    answers = Answers()
    async with engine(script=answers, **options) as stub, weft(stub, **LONG | settings) as gateway:
        tasks = [call(gateway, name) for name in "abcde"]
        await until(lambda: len(answers.begun) == 5)
        answers.open(*"abcde")
        await asyncio.gather(*tasks)
        assert gateway.parts.gates.state() == {}


async def test_an_unreachable_replica_does_not_keep_the_memory(
    engine: Any, weft: Any, until: Any
) -> None:
    answers = Answers()
    answers.open("a")
    settings = LONG | {"balancer": "round_robin"}
    async with (
        engine(script=answers, **STOCK) as one,
        engine(script=answers, **STOCK) as two,
        weft(one, two, **settings) as gateway,
    ):
        one.refuse()
        for _ in range(4):
            assert (await call(gateway, "a")).status_code == 200
        assert [gate.rules._sent for gate in gateway.parts.gates._gates.values()] == [{}, {}]
        clean(gateway)
