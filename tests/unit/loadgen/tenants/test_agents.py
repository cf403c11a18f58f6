"""Each attack names its programs as in its column, and both tenants are timed."""

from __future__ import annotations

import asyncio
import json
from itertools import islice
from typing import Any

import httpx
import pytest
import respx
from weft_bench.tenants.agents import ATTACKS, PINS, Caller, agent, attacking

pytestmark = pytest.mark.anyio

URL = "http://gateway/v1/chat/completions"


SERVED = {"usage": {"total_tokens": 7}}


def test_attacks_name_their_programs() -> None:
    named = {a.name: [list(islice(a.programs(t), 3)) for t in (0, 1)] for a in ATTACKS}
    assert named["one program"] == [["attack"] * 3] * 2
    assert named["a program per thread"] == [["attack-0"] * 3, ["attack-1"] * 3]
    assert named["a program per call"][1] == ["attack-1-0", "attack-1-1", "attack-1-2"]


@pytest.mark.parametrize("attacks", [ATTACKS, PINS])
def test_each_table_has_one_control_that_attacks_like_another_column(attacks: Any) -> None:
    (control,) = [attack for attack in attacks if attack.control]
    others = [attack for attack in attacks if not attack.control]
    assert [a for a in others if (a.programs, a.more) == (control.programs, control.more)]


@respx.mock
async def test_an_agent_calls_in_one_program_with_its_own_key() -> None:
    route = respx.post(URL).respond(200, json=SERVED)
    async with httpx.AsyncClient() as client:
        caller = Caller(client, "http://gateway", "m", "honest-1")
        await agent(caller, "p", 3, 8)
    assert len(caller.seconds) == 3
    assert caller.tokens == 21
    heads = [call.request.headers for call in route.calls]
    assert {head["x-weft-program"] for head in heads} == {"p"}
    assert {head["authorization"] for head in heads} == {"Bearer honest-1"}
    assert json.loads(route.calls[0].request.content)["max_tokens"] == 8


@respx.mock
async def test_refused_call_is_an_error_without_a_time() -> None:
    respx.post(URL).respond(429, text="limit")
    async with httpx.AsyncClient() as client:
        caller = Caller(client, "http://gateway", "m", "k")
        await caller.call("p", "x", 1)
        assert caller.seconds == []
        assert caller.errors == ["429 limit"]
        caller.forget()
        assert caller.errors == []


@respx.mock
async def test_an_attack_ends_with_its_block() -> None:
    async def served(request: httpx.Request) -> httpx.Response:
        await asyncio.sleep(0)
        return httpx.Response(200, json=SERVED)

    route = respx.post(URL).mock(side_effect=served)
    async with httpx.AsyncClient() as client:
        caller = Caller(client, "http://gateway", "m", "k")
        async with attacking(caller, ATTACKS[0], 4, 8, str.upper):
            while len(caller.seconds) < 8:
                await caller.call("own", "x", 1)
        ended = route.call_count
        await caller.call("own", "x", 1)
    assert route.call_count == ended + 1
    sent = [json.loads(call.request.content)["messages"][0]["content"] for call in route.calls]
    assert "THREAD 0, CALL 0" in sent


@respx.mock
async def test_a_tenants_programs_are_ended() -> None:
    alive = ["a", "b"]

    def listed(request: httpx.Request) -> httpx.Response:
        data = [{"id": name, "status": "idle"} for name in alive]
        return httpx.Response(200, json={"data": [*data, {"id": "old", "status": "finished"}]})

    def ended(request: httpx.Request) -> httpx.Response:
        alive.remove(request.url.path.rpartition("/")[2])
        return httpx.Response(200, json={})

    respx.get("http://gateway/v1/sessions").mock(side_effect=listed)
    respx.delete(url__startswith="http://gateway/v1/sessions/").mock(side_effect=ended)
    async with httpx.AsyncClient() as client:
        await Caller(client, "http://gateway", "m", "k").end()
    assert alive == []
