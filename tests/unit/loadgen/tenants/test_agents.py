"""Each attack names its programs as in its column, and both tenants are timed."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest
from support.serving import client_of
from weft_bench.tenants.agents import ATTACKS, PINS, Caller, agent, attacking

pytestmark = pytest.mark.anyio

SERVED = {"usage": {"total_tokens": 7}}


def test_attacks_name_their_programs() -> None:
    named = {
        a.name: [[a.program.format(thread=t, number=n) for n in range(3)] for t in (0, 1)]
        for a in ATTACKS
    }
    assert named["one program"] == [["attack"] * 3] * 2
    assert named["a program per thread"] == [["attack-0"] * 3, ["attack-1"] * 3]
    assert named["a program per call"][1] == ["attack-1-0", "attack-1-1", "attack-1-2"]


@pytest.mark.parametrize("attacks", [ATTACKS, PINS])
def test_each_table_has_one_control_that_attacks_like_another_column(attacks: Any) -> None:
    (control,) = [attack for attack in attacks if attack.control]
    others = [attack for attack in attacks if not attack.control]
    assert [a for a in others if (a.program, a.more) == (control.program, control.more)]


async def test_an_agent_calls_in_one_program_with_its_own_key() -> None:
    asked: list[httpx.Request] = []

    def served(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(200, json=SERVED)

    async with client_of(served) as client:
        caller = Caller(client, "m", "honest-1")
        await agent(caller, "p", 3, 8)
    assert len(caller.seconds) == 3
    assert caller.tokens == 21
    assert {request.url.path for request in asked} == {"/v1/chat/completions"}
    assert {request.headers["x-weft-program"] for request in asked} == {"p"}
    assert {request.headers["authorization"] for request in asked} == {"Bearer honest-1"}
    assert json.loads(asked[0].content)["max_tokens"] == 8


async def test_refused_call_is_an_error_without_a_time() -> None:
    async with client_of(lambda request: httpx.Response(429, text="limit")) as client:
        caller = Caller(client, "m", "k")
        await caller.call("p", "x", 1)
        assert caller.seconds == []
        assert caller.errors == ["429: limit"]
        caller.forget()
        assert caller.errors == []


async def test_an_attack_ends_with_its_block() -> None:
    sent: list[str] = []

    async def served(request: httpx.Request) -> httpx.Response:
        sent.append(json.loads(request.content)["messages"][0]["content"])
        await asyncio.sleep(0)
        return httpx.Response(200, json=SERVED)

    async with client_of(served) as client:
        caller = Caller(client, "m", "k")
        async with attacking(caller, ATTACKS[0], 4, 8, str.upper):
            while len(caller.seconds) < 8:
                await caller.call("own", "x", 1)
        assert caller.in_flight == 0
        # Calls that were cancelled on their way to the server do not count.
        await caller.call("own", "x", 1)
        ended = len(sent)
        await caller.call("own", "x", 1)
        assert len(sent) == ended + 1
    assert "THREAD 0, CALL 0" in sent


async def test_a_tenants_programs_are_ended() -> None:
    alive = ["a", "b"]

    def gateway(request: httpx.Request) -> httpx.Response:
        if request.method == "DELETE":
            alive.remove(request.url.path.removeprefix("/v1/sessions/"))
            return httpx.Response(200, json={})
        data = [{"id": name, "status": "idle"} for name in alive]
        return httpx.Response(200, json={"data": [*data, {"id": "old", "status": "finished"}]})

    async with client_of(gateway) as client:
        await Caller(client, "m", "k").end()
    assert alive == []
