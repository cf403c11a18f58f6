"""An honest tenant beside one that takes as much as there is: its share is that of its key."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from support.emulated import MODEL
from support.stack import SECRET, Stack
from support.waiting import RUN_S

pytestmark = [pytest.mark.system, pytest.mark.engine, pytest.mark.anyio]

HONEST, ATTACKER = "honest", "attacker"
AGENTS, CALLS, THREADS = 4, 8, 24
# Raises its calls as far as its hints can.
RAISED = {"weft": {"priority": 4, "reuse_priority": 4}}
PINNED = {"weft": {"retain_s": 3600, "reuse_priority": 4}}


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    """One engine with few slots and blocks, and a gateway that knows both keys."""
    with pytest.MonkeyPatch().context() as patch:
        patch.setenv("WEFT_API_KEYS", f"{HONEST},{ATTACKER}")
        few = ("--max-num-seqs", "4", "--num-gpu-blocks-override", "300")
        stack = Stack("--replicas", "1", "--emulated", "--preset", "8b-h200", "--", *few)
    yield stack
    assert stack.stop() == 0


async def call(
    client: httpx.AsyncClient, key: str, program: str, text: str, more: Any = None, tokens: int = 32
) -> dict[str, Any]:
    """Make a call and return its usage."""
    messages = [{"role": "user", "content": text}]
    body = {"model": MODEL, "messages": messages, "max_tokens": tokens, "ignore_eos": True}
    headers = {"authorization": f"Bearer {key}", "x-weft-program": program}
    answer = await client.post("/v1/chat/completions", json=body | (more or {}), headers=headers)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()["usage"]
    return found


async def attackers_calls(client: httpx.AsyncClient, *, programs: bool) -> int:
    """Return how many calls of the attacker are served while the honest agents make theirs.

    programs: each call of the attacker is a new program, in place of one in all.
    """
    served = 0

    async def attack(thread: int) -> None:
        nonlocal served
        number = 0
        while True:
            program = f"attack-{thread}-{number}" if programs else "attack"
            await call(client, ATTACKER, program, f"Thread {thread}, call {number}", RAISED)
            number, served = number + 1, served + 1

    async def agent(name: str, calls: int) -> None:
        for number in range(calls):
            await call(client, HONEST, name, f"{name}, step {number}: what comes next?")

    async def honest(calls: int) -> None:
        await asyncio.gather(*(agent(f"honest-{number}", calls) for number in range(AGENTS)))

    threads = [asyncio.create_task(attack(thread)) for thread in range(THREADS)]
    try:
        await honest(1)
        before = served
        await honest(CALLS)
        return served - before
    finally:
        for thread in threads:
            thread.cancel()
        await asyncio.gather(*threads, return_exceptions=True)


@pytest.mark.parametrize("programs", [False, True], ids=["one program", "a program per call"])
async def test_an_attacker_gets_no_more_than_the_share_of_its_key(
    stack: Stack, programs: bool
) -> None:
    async with httpx.AsyncClient(base_url=stack.url, timeout=RUN_S) as client:
        # Six times as many threads, and the calls of both take equally long.
        found = await attackers_calls(client, programs=programs)
        assert 0 < found <= 2 * AGENTS * CALLS


async def test_pins_of_an_attacker_leave_the_blocks_of_others(stack: Stack) -> None:
    engine = stack.replicas[0]
    headers = {"x-weft-secret": SECRET}
    async with httpx.AsyncClient(base_url=stack.url, timeout=RUN_S) as client:
        cached = {}
        for key in (ATTACKER, HONEST):
            await client.post(f"{engine}/weft/policy", json={"reset_cache": True}, headers=headers)
            context = f"What honest agents read beside {key}. " * 80
            for _ in range(2):
                usage = await call(client, HONEST, "reader", context, tokens=1)
            assert usage["prompt_tokens_details"]["cached_tokens"] > 0
            for number in range(12):
                text = f"Attack {number} beside {key}. " * 60
                await call(client, key, f"attack-{number}", text, PINNED, 1)
            usage = await call(client, HONEST, "reader", context, tokens=1)
            cached[key] = usage["prompt_tokens_details"]["cached_tokens"]
        # With one key, the pins take the blocks of the reader.
        assert cached[ATTACKER] > cached[HONEST]
        await client.post(f"{engine}/weft/policy", json={"reset_cache": True}, headers=headers)
