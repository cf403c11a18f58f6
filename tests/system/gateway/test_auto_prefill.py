"""Automatic prefill of next turns, over HTTP."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.turns import CALLS, RESULT, SYSTEM, USER

pytestmark = [pytest.mark.system, pytest.mark.anyio]


def kv(stub: Any) -> list[Any]:
    return [request.json for request in stub.other if request.target == "/weft/kv"]


def handles(gateway: Any) -> set[str]:
    return set(gateway.parts.prefills._own)


TOOLS = [{"type": "function", "function": {"name": "far", "parameters": {"type": "object"}}}]


def agent_engine(prefilled: list[Any], cached: int):
    """Return the script of an engine whose first turns call a tool, with `cached` cached tokens."""

    async def script(wire: Any, request: Any) -> None:
        body = request.json
        call = body["vllm_xargs"]["weft_call"]
        report = {
            "call": call, "service_s": 0.2, "prompt_tokens": 900, "cached_tokens": cached,
            "output_tokens": 100, "finished": True,
        }  # fmt: skip
        if body.get("add_generation_prompt") is False:
            prefilled.append(body)
            answer = {"choices": []}
        elif body["messages"][-1]["role"] == "tool":
            answer = {"choices": [{"message": {"role": "assistant", "content": "311 km"}}]}
        else:
            answer = {"choices": [{"message": {**CALLS, "reasoning_content": "hm"}}]}
        await wire.plain(answer, headers={"x-weft-report": json.dumps(report)})

    return script


async def run_agent(gateway: Any, name: str, until: Any) -> Any:
    """Run two turns and return the receipt of the second. Its system prompt mentions the tool."""
    headers = {"x-session-id": name}
    before = len(gateway.parts.prefills)
    await gateway.call(body={"messages": [SYSTEM, USER], "tools": TOOLS}, headers=headers)
    await until(lambda: len(gateway.parts.prefills) >= before)
    await until(lambda: gateway.in_flight() == 0)
    after = {"role": "system", "content": "Read what the tool said."}
    got = await gateway.call(
        body={"messages": [after, USER, CALLS, RESULT], "tools": TOOLS},
        headers={**headers, "x-request-id": f"{name}-2"},
    )
    assert got.status_code == 200
    return (await gateway.client.get(f"/v1/receipts/{name}-2")).json()


async def test_a_next_turn_is_prefilled_after_enough_similar_turns(
    engine: Any, weft: Any, until: Any
) -> None:
    prefilled: list[Any] = []
    async with (
        engine(script=agent_engine(prefilled, cached=0), canned={"/weft/kv": {}}) as stub,
        weft(stub) as gateway,
    ):
        for number in range(2):
            await run_agent(gateway, f"run-{number}", until)
        assert prefilled == []
        await run_agent(gateway, "run-2", until)
        (prefill,) = prefilled
        assert [m["role"] for m in prefill["messages"]] == ["system", "user", "assistant"]
        assert prefill["messages"][0]["content"] == "Read what the tool said."
        assert "reasoning_content" not in prefill["messages"][2]
        assert (prefill["tools"], prefill["tool_choice"]) == (TOOLS, "none")
        # The turn is an ordinary call and claims the prefill.
        assert len(gateway.parts.prefills) == 0


async def test_a_wrong_prediction_releases_its_prefill(engine: Any, weft: Any, until: Any) -> None:
    prefilled: list[Any] = []
    async with (
        engine(script=agent_engine(prefilled, cached=0), canned={"/weft/kv": {}}) as stub,
        weft(stub) as gateway,
    ):
        for number in range(2):
            await run_agent(gateway, f"run-{number}", until)
        headers = {"x-session-id": "run-2"}
        await gateway.call(body={"messages": [SYSTEM, USER], "tools": TOOLS}, headers=headers)
        await until(lambda: len(gateway.parts.prefills) == 1)
        (predicted,) = handles(gateway)
        other = {"role": "user", "content": "Never mind."}
        await gateway.call(body={"messages": [SYSTEM, other], "tools": TOOLS}, headers=headers)
        assert predicted not in handles(gateway)
        assert [sent["action"] for sent in kv(stub)] == ["give_up"]


@pytest.mark.parametrize(("cached", "settings"), [(0, {"auto_prefill": False}), (1000, {})])
async def test_a_next_turn_is_not_prefilled_when_cached_or_disabled(
    engine: Any, weft: Any, until: Any, cached: int, settings: Any
) -> None:
    prefilled: list[Any] = []
    async with (
        engine(script=agent_engine(prefilled, cached)) as stub,
        weft(stub, **settings) as gateway,
    ):
        for number in range(5):
            headers = {"x-session-id": f"run-{number}"}
            for messages in ([SYSTEM, USER], [SYSTEM, USER, CALLS, RESULT]):
                await gateway.call(body={"messages": messages, "tools": TOOLS}, headers=headers)
            await until(lambda: gateway.in_flight() == 0)
        assert prefilled == []
