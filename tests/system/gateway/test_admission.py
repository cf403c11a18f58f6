"""Calls wait in the gateway for the KV cache of an engine without the plugin."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.redis_server import RedisServer

pytestmark = [pytest.mark.system, pytest.mark.anyio]

# 1,600 tokens, 1,200 of them for residents.
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
        usage = {"prompt_tokens": 700, "completion_tokens": 20, "total_tokens": 720}
        await wire.plain({"object": "chat.completion", "choices": [], "usage": usage})


def call(gateway: Any, name: str, tokens: int = 700, key: str = "", **headers: str) -> Any:
    """Start a call of the program `name` with a context of about this many tokens."""
    message = {"role": "user", "name": name, "content": "four" * tokens}
    given = {"x-session-id": name} | headers
    if key:
        given["authorization"] = f"Bearer {key}"
    body = {"messages": [message]}
    return asyncio.ensure_future(gateway.call(headers=given, body=body))


def held(gateway: Any) -> int:
    return sum(one["held"] for one in gateway.parts.admission.state().values())


async def receipt(gateway: Any, answer: Any) -> Any:
    found = await gateway.client.get(f"/v1/receipts/{answer.headers['x-request-id']}")
    return found.json()


async def metrics(gateway: Any) -> str:
    text: str = (await gateway.client.get("/metrics")).text
    return text


def clean(gateway: Any) -> None:
    for state in gateway.parts.admission.state().values():
        assert (state["held"], state["violations"]) == (0, [])


async def test_a_call_that_does_not_fit_waits_until_another_program_ends(
    engine: Any, weft: Any, until: Any
) -> None:
    answers = Answers()
    async with engine(script=answers, **STOCK) as stub, weft(stub, **LONG) as gateway:
        first, second, third = call(gateway, "a"), call(gateway, "b"), None
        await until(lambda: answers.begun == ["a", "b"])
        third = call(gateway, "c")
        await until(lambda: held(gateway) == 1)
        answers.open("a", "b", "c")
        # The program `a` keeps its place until it ends, and `b` was a guest.
        assert (await first).status_code == (await second).status_code == 200
        assert (await third).status_code == 200
        memory = (await receipt(gateway, await third))["memory"]
        assert memory["programs_ahead"] == 1
        assert memory["memory_tokens"] > 600
        assert memory["text"].startswith("waited ")
        assert (await receipt(gateway, await first))["memory"] is None
        assert 'weft_memory_waits_total{end="fits",replica="r0"} 1.0' in await metrics(gateway)
        clean(gateway)
