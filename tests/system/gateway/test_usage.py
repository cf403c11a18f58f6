"""The usage of engines that send no report: sessions, metrics, limits, and learned lengths."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytestmark = [pytest.mark.system, pytest.mark.anyio]

ASK = [{"role": "user", "content": "hello " * 40}]
CHAT = {"prompt_tokens": 50, "completion_tokens": 7, "total_tokens": 57}
CHAT |= {"prompt_tokens_details": {"cached_tokens": 32}}
RESPONSES = {"input_tokens": 50, "output_tokens": 7, "total_tokens": 57}
RESPONSES |= {"input_tokens_details": {"cached_tokens": 32}}
# Messages count the tokens of the cache apart.
MESSAGES = {"input_tokens": 6, "cache_read_input_tokens": 32, "cache_creation_input_tokens": 12}
MESSAGES |= {"output_tokens": 7}
USAGES: dict[str, Any] = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": CHAT,
    "/v1/responses": RESPONSES,
    "/v1/messages": MESSAGES,
}

# The metrics of an engine whose cache has 1,600,000 tokens.
CACHE = 'vllm:cache_config_info{block_size="16",num_gpu_blocks="100000"} 1.0\n'


def event(kind: str, **members: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind} | members)}\n\n".encode()


async def stock(wire: Any, request: Any) -> None:
    """Answer like an engine without the plugin. Its usage follows the answer's text."""
    path, usage = request.target, USAGES[request.target]
    if not request.json.get("stream"):
        await wire.plain({"id": "a", "content": [{"text": '"usage": {'}], "usage": usage})
    elif path == "/v1/messages":
        delta = {"delta": {"stop_reason": "end_turn"}, "usage": usage}
        await wire.stream(event("message_delta", **delta), event("message_stop"))
    elif path == "/v1/responses":
        done = {"id": "resp_1", "output": [], "usage": usage}
        await wire.stream(event("response.completed", sequence_number=0, response=done))
    else:
        last = json.dumps({"id": "c", "choices": [], "usage": usage}).encode()
        await wire.stream(b'data: {"choices":[]}\n\n', b"data: %b\n\ndata: [DONE]\n\n" % last)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", USAGES)
async def test_the_usage_of_a_stock_engine_is_counted(
    path: str, stream: bool, engine: Any, weft: Any
) -> None:
    prompt = {"/v1/responses": {"input": "hi"}, "/v1/completions": {"prompt": "hi"}}
    body = {"model": "tiny", "stream": stream} | prompt.get(path, {"messages": ASK})
    async with (
        engine(script=stock, weft=False) as stub,
        weft(stub, tokens_per_minute=1000) as gateway,
    ):
        for _ in range(2):
            got = await gateway.client.post(path, json=body, headers={"x-weft-program": "run"})
            assert got.status_code == 200
        session = (await gateway.client.get("/v1/sessions/run")).json()
        counts = ("prompt_tokens", "cached_tokens", "output_tokens")
        assert [session[name] for name in counts] == [100, 64, 14]
        # Such an engine reports no times.
        assert session["service_s"] is None
        kept = (await gateway.client.get(f"/v1/receipts/{got.headers['x-request-id']}")).json()
        assert [kept["actual"][name] for name in counts] == [50, 32, 7]
        assert kept["actual"]["service_s"] is None
        metrics = (await gateway.client.get("/metrics")).text
        assert 'weft_prompt_tokens_total{replica="r0"} 100.0' in metrics
        assert 'weft_cached_tokens_total{replica="r0"} 64.0' in metrics
        assert 'weft_output_tokens_total{replica="r0"} 14.0' in metrics
        # The second call has corrected the bucket by what the first one used.
        third = await gateway.client.post(path, json=body)
        left = int(third.headers["x-ratelimit-remaining-tokens"])
        assert 1000 - 2 * 57 - 200 <= left <= 1000 - 2 * 57 + 20


async def test_a_cached_prompt_of_messages_keeps_its_length(engine: Any, weft: Any) -> None:
    async def script(wire: Any, request: Any) -> None:
        usage = {"input_tokens": 143, "cache_read_input_tokens": 9857, "output_tokens": 7}
        await wire.plain({"id": "a", "content": [], "usage": usage})

    messages = [{"role": "user", "content": "word " * 10_000}]
    body = {"model": "tiny", "max_tokens": 9, "messages": messages}
    async with (
        engine(script=script, weft=False, metrics=CACHE) as stub,
        weft(stub, balancer="locality") as gateway,
    ):
        predicted = []
        for _ in range(6):
            got = await gateway.client.post("/v1/messages", json=body)
            kept = await gateway.client.get(f"/v1/receipts/{got.headers['x-request-id']}")
            predicted.append(kept.json()["predicted"]["prompt_tokens"])
        # Placement and admission see a long prompt, not the 143 tokens that were not in the cache.
        assert predicted[-1] > 9_000
