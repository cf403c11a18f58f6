"""What one gateway is told, another one goes by: two gateways on one Redis."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.redis_server import RedisServer

pytestmark = [pytest.mark.system, pytest.mark.anyio]

NAMED = {"x-session-id": "run"}
MESSAGES = [
    {"role": "system", "content": "You are an agent. " * 40},
    {"role": "user", "content": "What is the weather in Lyon? " * 10},
    {"role": "assistant", "content": "I will look. " * 10},
    {"role": "tool", "tool_call_id": "c", "content": "Sunny. " * 60},
]


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path)
    yield server
    server.kill()


def tags_of(stub: Any) -> Any:
    return stub.requests[-1].json["vllm_xargs"]["weft_tags"][1::2]


async def test_tags_told_to_one_gateway_hold_for_calls_through_another(
    redis: RedisServer, engine: Any, weft: Any
) -> None:
    hint = {"session_id": "run", "tags": [{"messages": [1, 3], "tag": "SYSTEM_PROMPT"}]}
    async with (
        engine() as stub,
        weft(stub, redis_url=redis.url) as first,
        weft(stub, redis_url=redis.url) as second,
    ):
        # Also through one that has seen the program before.
        await second.call(body={"messages": MESSAGES}, headers=NAMED)
        assert tags_of(stub) == [4, 3, 2]
        await first.client.post("/v1/hints/tags", json=hint)
        for gateway in (second, first):
            await gateway.call(body={"messages": MESSAGES}, headers=NAMED)
            assert tags_of(stub) == [4, 2]
        other = {"authorization": "Bearer sk-other", **NAMED}
        await second.call(body={"messages": MESSAGES}, headers=other)
        assert tags_of(stub) == [4, 3, 2]
        await second.client.post("/v1/hints/tags", json=hint | {"tags": []})
        await first.call(body={"messages": MESSAGES}, headers=NAMED)
        assert tags_of(stub) == [4, 3, 2]


async def test_tags_told_while_redis_is_away_hold_here_and_then_everywhere(
    redis: RedisServer, engine: Any, weft: Any, until: Any
) -> None:
    hint = {"session_id": "run", "tags": [{"messages": [1, 3], "tag": "SYSTEM_PROMPT"}]}
    async with engine() as stub, weft(stub, redis_url=redis.url) as gateway:
        redis.kill()
        told = await gateway.client.post("/v1/hints/tags", json=hint)
        assert told.status_code == 200
        got = await gateway.call(body={"messages": MESSAGES}, headers=NAMED)
        assert got.status_code == 200
        assert tags_of(stub) == [4, 2]
        redis.start()
        await until(lambda: not gateway.services.table.local)
        await gateway.call(body={"messages": MESSAGES}, headers=NAMED)
        assert tags_of(stub) == [4, 2]
