"""Each attack takes place, is ended by its limit if it has one, and other calls are served."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import pytest
from support.attacks import ATTACKS, Activity, Target
from support.waiting import DEADLINE_S

pytestmark = [pytest.mark.system, pytest.mark.anyio]


@pytest.mark.parametrize("name", ATTACKS)
async def test_other_calls_are_served_during_each_attack(name: str, engine: Any, weft: Any) -> None:
    attack = ATTACKS[name]

    async def script(wire: Any, request: Any) -> None:
        if not request.json.get("stream"):
            await wire.plain({"id": "x", "object": "chat.completion"})
            return
        await wire.stream(end=False)
        while True:
            await wire.pieces(b"data: %b\n\n" % (b"x" * 65536), end=False)

    async with engine(script=script) as stub, weft(stub, **attack.settings) as gateway:
        activity = Activity()
        work = asyncio.create_task(attack.run(Target.at(gateway.url, "tiny"), activity))
        try:
            # The limit that ends the attack, if one does.
            counter = f'weft_errors_total{{code="{attack.code}"}}' if attack.code else ""
            async with asyncio.timeout(DEADLINE_S):
                while counter not in (await gateway.client.get("/metrics")).text or not getattr(
                    activity, attack.sign
                ):
                    assert (await gateway.call()).status_code == 200
                    await asyncio.sleep(0.05)
            for _ in range(10):
                assert (await gateway.call()).status_code == 200
        finally:
            work.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await work
        metrics = gateway.parts.metrics.render().decode()
        assert 'code="internal_error"' not in metrics


async def test_a_body_of_many_small_messages_is_passed_on_without_parsing_them(
    engine: Any, weft: Any
) -> None:
    # Two roles: if the gateway parsed the messages, it would send two tags.
    messages = [{"role": "system", "content": "hi"}, *[{"role": "user", "content": "hi"}] * 30_000]
    async with engine() as stub, weft(stub) as gateway:
        for session in ({}, {"session_id": "run-1"}):
            got = await gateway.call(body={"messages": messages, **session})
            assert got.status_code == 200
            sent = stub.requests[-1].json
            assert sent["messages"] == messages
            # One tag covers the whole prompt: the gateway does not parse this many messages.
            assert sent["vllm_xargs"]["weft_tags"] == [1 << 30, 3]
        assert "session_id" not in sent
        assert got.headers["x-weft-program"] == "run-1"
        # Calls without an identity and with equal content are separate programs.
        programs = set()
        for _ in range(2):
            got = await gateway.call(body={"messages": messages})
            programs.add(got.headers["x-weft-program"])
        assert len(programs) == 2


async def test_settings_limit_the_bodies_that_are_analysed(engine: Any, weft: Any) -> None:
    limits = {"read_body_messages": 100, "read_body_bytes": 65_536}
    async with engine() as stub, weft(stub, **limits) as gateway:
        for number, size, analysed in ((100, 100, True), (101, 100, False), (10, 8000, False)):
            messages = [{"role": "user", "content": "x" * size}] * number
            messages[0] = {"role": "system", "content": "y"}
            assert (await gateway.call(body={"messages": messages})).status_code == 200
            whole = stub.requests[-1].json["vllm_xargs"]["weft_tags"] == [1 << 30, 3]
            assert whole is not analysed


async def test_a_prompt_of_nested_lists_is_passed_on(engine: Any, weft: Any) -> None:
    async def script(wire: Any, request: Any) -> None:
        await wire.plain({"object": "text_completion"})

    def prompt(depth: int) -> bytes:
        return b'{"model": "tiny", "prompt": ' + b"[" * depth + b"]" * depth + b"}"

    async with engine(script=script) as stub, weft(stub) as gateway:
        got = await gateway.client.post("/v1/completions", content=prompt(400))
        assert got.status_code == 200, got.text
        assert stub.requests[-1].json["prompt"] == json.loads(prompt(400))["prompt"]
        got = await gateway.client.post("/v1/completions", content=prompt(1000))
        assert got.status_code == 400
        assert got.json()["error"]["code"] == "too_deeply_nested"
