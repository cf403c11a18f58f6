"""Next turns that the gateway prefills by itself, over HTTP."""

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
    """An engine whose first turns call a tool, and that finds `cached` tokens of any prompt."""

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
    """Two turns; the second under a system prompt that speaks of the tool. Its receipt."""
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


async def test_a_next_turn_is_foreseen_once_turns_have_shown_what_follows(
    engine: Any, weft: Any, until: Any
) -> None:
    prefilled: list[Any] = []
    async with (
        engine(script=agent_engine(prefilled, cached=0), asides={"/weft/kv": {}}) as stub,
        weft(stub) as gateway,
    ):
        for number in range(2):
            await run_agent(gateway, f"run-{number}", until)
        assert prefilled == []
        await run_agent(gateway, "run-2", until)
        (ahead,) = prefilled
        assert [m["role"] for m in ahead["messages"]] == ["system", "user", "assistant"]
        assert ahead["messages"][0]["content"] == "Read what the tool said."
        assert "reasoning_content" not in ahead["messages"][2]
        assert (ahead["tools"], ahead["tool_choice"]) == (TOOLS, "none")
        # The turn came as any other call does, and took it.
        assert len(gateway.parts.prefills) == 0


async def test_what_was_foreseen_wrongly_is_let_go(engine: Any, weft: Any, until: Any) -> None:
    prefilled: list[Any] = []
    async with (
        engine(script=agent_engine(prefilled, cached=0), asides={"/weft/kv": {}}) as stub,
        weft(stub) as gateway,
    ):
        for number in range(2):
            await run_agent(gateway, f"run-{number}", until)
        headers = {"x-session-id": "run-2"}
        await gateway.call(body={"messages": [SYSTEM, USER], "tools": TOOLS}, headers=headers)
        await until(lambda: len(gateway.parts.prefills) == 1)
        (foreseen,) = handles(gateway)
        other = {"role": "user", "content": "Never mind."}
        await gateway.call(body={"messages": [SYSTEM, other], "tools": TOOLS}, headers=headers)
        assert foreseen not in handles(gateway)
        assert [sent["action"] for sent in kv(stub)] == ["give_up"]


@pytest.mark.parametrize(("cached", "settings"), [(0, {"auto_prefill": False}), (1000, {})])
async def test_nothing_is_foreseen_where_it_does_not_pay_or_is_not_wanted(
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
