"""Limits per API key over HTTP: errors in the API's format, rate limit headers, and OpenAI's
client.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import openai
import pytest
from support.redis_server import RedisServer

KEYS = ("a", "b")

pytestmark = [pytest.mark.system, pytest.mark.anyio]


def key(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {name}"}


async def test_gateways_on_one_redis_share_the_limits(
    engine: Any, weft: Any, tmp_path: Path
) -> None:
    redis = RedisServer(tmp_path)
    settings = {"redis_url": redis.url, "requests_per_minute": 2}
    try:
        async with (
            engine() as stub,
            weft(stub, **settings) as left,
            weft(stub, **settings) as right,
        ):
            for gateway, status in ((left, 200), (right, 200), (left, 429), (right, 429)):
                assert (await gateway.call(headers=key("a"))).status_code == status
    finally:
        redis.kill()


@pytest.mark.parametrize("fault", ["model", "disconnect", "engine"])
async def test_a_failed_call_releases_its_place(
    fault: str, engine: Any, weft: Any, until: Any
) -> None:
    async def script(wire: Any, request: Any) -> None:
        if fault == "engine":
            wire.writer.close()
            return
        if fault == "disconnect" and len(stub.requests) == 1:
            await asyncio.Event().wait()
        await wire.plain({})

    async with engine(script=script) as stub, weft(stub, calls_in_flight=1) as gateway:
        if fault == "disconnect":
            call = asyncio.create_task(gateway.call(headers=key("a")))
            await until(lambda: stub.requests)
            call.cancel()
        else:
            body = {"model": "unknown"} if fault == "model" else {}
            assert (await gateway.call(body=body, headers=key("a"))).status_code >= 400
        limiter = gateway.parts.stores.limiter
        tenant = gateway.parts.auth.caller({b"authorization": b"Bearer a"}).tenant
        await until(lambda: limiter.in_flight(tenant) == 0)


async def test_a_prefill_counts_as_a_request(engine: Any, weft: Any) -> None:
    async with engine() as stub, weft(stub, requests_per_minute=1) as gateway:
        body = {"model": "tiny", "messages": [{"role": "user", "content": "x"}], "session_id": "s"}
        answers = [
            await gateway.client.post("/v1/hints/prefill", json=body, headers=key("a"))
            for _ in range(2)
        ]
        assert [answer.status_code for answer in answers] == [201, 429]
        assert answers[1].json()["error"]["code"] == "rate_limit_exceeded"


async def test_the_keys_file_sets_limits_and_weights_per_key(
    engine: Any, weft: Any, tmp_path: Path
) -> None:
    file = tmp_path / "keys.toml"
    text = '[keys.big]\nkey = "big"\nweight = 4\nrequests_per_minute = 100\n'
    file.write_text(f"[default]\nrequests_per_minute = 1\n{text}")
    settings = {"keys_file": str(file), "api_keys": "small"}
    async with engine() as stub, weft(stub, **settings) as gateway:
        for _ in range(3):
            assert (await gateway.call(headers=key("big"))).status_code == 200
        assert (await gateway.call(headers=key("small"))).status_code == 200
        assert (await gateway.call(headers=key("small"))).status_code == 429
        xargs = [request.json["vllm_xargs"] for request in stub.requests]
        assert [each.get("weft_weight", 1.0) for each in xargs] == [4.0, 4.0, 4.0, 1.0]
        assert xargs[0]["weft_tenant"] == xargs[1]["weft_tenant"] != xargs[3]["weft_tenant"]


async def test_the_openai_client_raises_a_rate_limit_error(engine: Any, weft: Any) -> None:
    async with engine() as stub, weft(stub, requests_per_minute=1) as gateway:
        client = openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="a", max_retries=0)
        ask = {"model": "tiny", "messages": [{"role": "user", "content": "x"}]}
        await client.chat.completions.create(**ask)
        with pytest.raises(openai.RateLimitError) as error:
            await client.chat.completions.create(**ask)
        assert error.value.code == "rate_limit_exceeded"
        await client.close()


@pytest.mark.parametrize("path", ["/tokenize", "/detokenize", "/v1/messages/count_tokens"])
async def test_a_token_count_request_counts_as_a_request(path: str, engine: Any, weft: Any) -> None:
    async with engine() as stub, weft(stub, requests_per_minute=1) as gateway:
        answers = [await gateway.call(path, headers=key("a")) for _ in range(2)]
        assert [answer.status_code for answer in answers] == [200, 429]
        assert answers[1].headers["x-ratelimit-remaining-requests"] == "0"
        assert len(stub.requests) == 1


@pytest.mark.parametrize("end", ["completed", "unreachable", "lost"])
async def test_a_background_response_keeps_its_place_until_its_end(
    end: str, engine: Any, weft: Any, until: Any
) -> None:
    response = {"id": "resp_1", "status": "queued"}

    async def script(wire: Any, request: Any) -> None:
        if request.method == "GET" and response["status"] == "lost":
            await wire.plain({"error": {"message": "no"}}, "404 Not Found")
        else:
            await wire.plain(response)

    async with engine(script=script) as stub, weft(stub, calls_in_flight=1) as gateway:
        body = {"input": "x", "background": True}
        assert (await gateway.call("/v1/responses", body=body, headers=key("a"))).status_code == 200
        response["status"] = "in_progress"
        asked = len(stub.requests)
        await until(lambda: len(stub.requests) > asked + 1)  # The gateway has polled it.
        assert (await gateway.call(headers=key("a"))).status_code == 429
        assert (await gateway.call(headers=key("b"))).status_code == 200
        if end == "unreachable":
            stub.refuse()
        response["status"] = end
        limiter = gateway.parts.stores.limiter
        tenant = gateway.parts.auth.caller({b"authorization": b"Bearer a"}).tenant
        await until(lambda: limiter.in_flight(tenant) == 0)


async def test_a_background_response_releases_its_place_after_the_call_timeout(
    engine: Any, weft: Any, until: Any
) -> None:
    async def script(wire: Any, request: Any) -> None:
        await wire.plain({"id": "resp_1", "status": "queued"})

    settings = {"calls_in_flight": 1, "first_byte_timeout_s": 0.5}
    async with engine(script=script) as stub, weft(stub, **settings) as gateway:
        body = {"input": "x", "background": True}
        assert (await gateway.call("/v1/responses", body=body, headers=key("a"))).status_code == 200
        limiter = gateway.parts.stores.limiter
        tenant = gateway.parts.auth.caller({b"authorization": b"Bearer a"}).tenant
        await until(lambda: limiter.in_flight(tenant) == 0)
