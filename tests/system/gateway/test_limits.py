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
from weft_engine.wire import CallReport

KEYS = ("a", "b")

pytestmark = [pytest.mark.system, pytest.mark.anyio]


def key(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {name}"}


async def test_requests_beyond_the_limit_get_429_and_other_keys_do_not(
    engine: Any, weft: Any
) -> None:
    async with engine() as stub, weft(stub, requests_per_minute=2) as gateway:
        answers = [await gateway.call(headers=key("a")) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200, 200, 429]
        assert answers[0].headers["x-ratelimit-limit-requests"] == "2"
        assert answers[0].headers["x-ratelimit-remaining-requests"] == "1"
        assert answers[0].headers["x-ratelimit-reset-requests"].endswith("s")
        refused = answers[2]
        assert refused.json()["error"]["code"] == "rate_limit_exceeded"
        assert "requests per minute: limit 2" in refused.json()["error"]["message"]
        assert 1 <= int(refused.headers["retry-after"]) <= 30
        assert refused.headers["x-ratelimit-remaining-requests"] == "0"
        assert (await gateway.call(headers=key("b"))).status_code == 200
        assert len(stub.requests) == 3


async def test_answers_without_limits_have_no_rate_limit_headers(engine: Any, weft: Any) -> None:
    async with engine() as stub, weft(stub) as gateway:
        answer = await gateway.call(headers=key("a"))
        assert not [name for name in answer.headers if name.startswith("x-ratelimit")]


async def test_anthropic_clients_get_errors_in_their_format(engine: Any, weft: Any) -> None:
    async with engine() as stub, weft(stub, requests_per_minute=1) as gateway:
        for _ in range(2):
            answer = await gateway.call("/v1/messages", headers={"x-api-key": "a"})
        assert answer.status_code == 429
        assert answer.json()["error"]["type"] == "rate_limit_error"


async def test_tokens_counted_by_the_engine_are_charged(engine: Any, weft: Any) -> None:
    async def script(wire: Any, request: Any) -> None:
        call = request.json["vllm_xargs"]["weft_call"]
        text = CallReport(call, 1.0, prompt_tokens=90, output_tokens=1900).to_json()
        await wire.plain({}, headers={"x-weft-report": text})

    async with engine(script=script) as stub, weft(stub, tokens_per_minute=500) as gateway:
        assert (await gateway.call(headers=key("a"))).status_code == 200
        refused = await gateway.call(headers=key("a"))
        assert refused.status_code == 429
        assert "tokens per minute: limit 500" in refused.json()["error"]["message"]
        assert refused.headers["x-ratelimit-remaining-tokens"] == "0"
        # OpenAI's client does not repeat a call that has to wait longer than two minutes.
        assert refused.headers["retry-after"] == "120"


async def test_a_call_in_flight_ends_with_its_answer(engine: Any, weft: Any) -> None:
    hold = asyncio.Event()

    async def script(wire: Any, request: Any) -> None:
        await hold.wait()
        await wire.plain({})

    settings = {"calls_in_flight": 1, "requests_per_minute": 9, "tokens_per_minute": 900}
    async with engine(script=script) as stub, weft(stub, **settings) as gateway:
        first = asyncio.create_task(gateway.call(headers=key("a")))
        async with asyncio.timeout(10):
            while not stub.requests:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        refused = await gateway.call(headers=key("a"))
        assert refused.status_code == 429
        assert "calls in flight: limit 1" in refused.json()["error"]["message"]
        assert refused.headers["retry-after"] == "1"
        assert refused.headers["x-ratelimit-limit-requests"] == "9"
        assert refused.headers["x-ratelimit-remaining-requests"] == "8"
        assert refused.headers["x-ratelimit-limit-tokens"] == "900"
        hold.set()
        assert (await first).status_code == 200
        assert (await gateway.call(headers=key("a"))).status_code == 200


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
    file.write_text('[keys.big]\nkey = "big"\nweight = 4\nrequests_per_minute = 100\n')
    settings = {"keys_file": str(file), "requests_per_minute": 1, "api_keys": "small"}
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
