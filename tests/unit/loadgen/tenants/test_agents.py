"""Each attack names its programs as its column says, and both tenants are timed."""

from __future__ import annotations

import json
from itertools import islice

import httpx
import pytest
import respx
from weft_bench.tenants.agents import ATTACKS, Caller, agent, attacking

pytestmark = pytest.mark.anyio

URL = "http://gateway/v1/chat/completions"


def test_attacks_name_their_programs() -> None:
    named = {a.name: [list(islice(a.programs(t), 3)) for t in (0, 1)] for a in ATTACKS}
    assert named["one program"] == [["attack"] * 3] * 2
    assert named["a program per thread"] == [["attack-0"] * 3, ["attack-1"] * 3]
    assert named["a program per call"][1] == ["attack-1-0", "attack-1-1", "attack-1-2"]


@respx.mock
async def test_an_agent_calls_in_one_program_with_its_own_key() -> None:
    route = respx.post(URL).respond(200, json={})
    async with httpx.AsyncClient() as client:
        caller = Caller(client, "http://gateway", "m", "honest-1")
        await agent(caller, "p", 3, 8)
    assert len(caller.times.seconds) == 3
    heads = [call.request.headers for call in route.calls]
    assert {head["x-weft-program"] for head in heads} == {"p"}
    assert {head["authorization"] for head in heads} == {"Bearer honest-1"}
    assert json.loads(route.calls[0].request.content)["max_tokens"] == 8


@respx.mock
async def test_a_refused_call_is_an_error_and_not_a_time() -> None:
    respx.post(URL).respond(429, text="limit")
    async with httpx.AsyncClient() as client:
        caller = Caller(client, "http://gateway", "m", "k")
        await caller.call("p", "x", 1)
    assert caller.times.seconds == []
    assert caller.times.errors == ["429 limit"]


@respx.mock
async def test_an_attack_ends_with_its_block() -> None:
    route = respx.post(URL).respond(200, json={})
    async with httpx.AsyncClient() as client:
        caller = Caller(client, "http://gateway", "m", "k")
        async with attacking(caller, ATTACKS[0], 4, 8):
            while len(caller.times.seconds) < 8:
                await caller.call("own", "x", 1)
        ended = route.call_count
        await caller.call("own", "x", 1)
    assert route.call_count == ended + 1


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
