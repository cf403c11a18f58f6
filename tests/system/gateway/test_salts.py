"""Salts of the prefix cache: each tenant has a separate salt on every replica that may run vLLM."""

from __future__ import annotations

import json
from typing import Any

import pytest
from weft_gateway.engine.salts import tenant_salt
from weft_gateway.programs.identity import tenant_of

pytestmark = [pytest.mark.system, pytest.mark.anyio]

SALT = tenant_salt(tenant_of("sk-mine"))
KEYS = ("sk-mine", "sk-other")
KEY = {"authorization": "Bearer sk-mine"}
OTHER = {"authorization": "Bearer sk-other"}


@pytest.mark.parametrize("state", ["500 Internal Server Error", "503 Service Unavailable"])
@pytest.mark.parametrize("owner", ["vllm", "llamacpp"])
async def test_salts_are_sent_to_a_replica_of_unknown_kind(
    owner: str,
    state: str,
    engine: Any,
    weft: Any,
    until: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with (
        engine(weft=False, owner=owner, state=state) as stub,
        weft(stub, health_interval_s=0.01) as gateway,
    ):
        assert (await gateway.call(headers=KEY)).status_code == 200
        assert (await gateway.call(headers=KEY, body={"cache_salt": SALT})).status_code == 200
        assert (await gateway.call(headers=OTHER, body={"cache_salt": SALT})).status_code == 200
        salts = [request.json["cache_salt"] for request in stub.requests]
        assert salts == [SALT, tenant_salt(SALT, SALT), salts[2]]
        assert salts[2] not in (SALT, salts[1])
        asked = stub.asked
        await until(lambda: stub.asked > asked + 3)
    warnings = [r for r in caplog.records if "does not identify itself" in r.message]
    assert len(warnings) == 1


async def test_a_detected_kind_survives_a_failed_probe(engine: Any, weft: Any, until: Any) -> None:
    async with (
        engine() as plugin,
        engine(weft=False, owner="llamacpp") as stock,
        weft(plugin, stock, health_interval_s=0.01) as gateway,
    ):
        plugin.state = stock.state = "500 Internal Server Error"
        asked = plugin.asked, stock.asked
        await until(lambda: plugin.asked > asked[0] and stock.asked > asked[1])
        for _ in range(2):
            assert (await gateway.call(headers=KEY)).status_code == 200
        assert plugin.requests[0].json["cache_salt"] == SALT
        assert "vllm_xargs" in plugin.requests[0].json
        assert "cache_salt" not in stock.requests[0].json


IMAGE = {"type": "image_url", "image_url": None}


def asked(uuid: Any, name: str = "uuid") -> bytes:
    """Return a chat that refers to media by a name."""
    part = json.dumps(IMAGE | {"uuid": uuid}).replace("uuid", name)
    return b'{"model":"tiny","messages":[{"role":"user","content":[%b]}]}' % part.encode()


@pytest.mark.parametrize("name", ["uuid", "\\u0075uid"])
async def test_a_name_of_media_is_the_tenants_own(name: str, engine: Any, weft: Any) -> None:
    async with engine() as stub, weft(stub) as gateway:
        for key in ("sk-mine", "sk-other", "sk-mine"):
            headers = {"authorization": f"Bearer {key}"}
            raw = asked("logo", name)
            path = "/v1/chat/completions"
            assert (await gateway.client.post(path, content=raw, headers=headers)).is_success
        sent = [request.json["messages"][0]["content"][0] for request in stub.requests]
        names = [part.pop("uuid") for part in sent]
        assert sent == [IMAGE] * 3
        assert names[0] == names[2] == tenant_salt(SALT, "logo")
        assert len({*names, "logo"}) == 3


async def test_a_name_of_media_in_a_body_that_is_not_read_is_refused(
    engine: Any, weft: Any
) -> None:
    async with engine() as stub, weft(stub) as gateway:
        for name, status in (("uuid", 400), ("\\u0075uid", 400), ("uid", 200)):
            raw = asked("x", name)[:-1] + b',"input":[%b0]}' % (b"0," * 200_000)
            answer = await gateway.client.post("/v1/chat/completions", content=raw)
            assert answer.status_code == status
        answer = await gateway.client.post("/tokenize", content=asked("x"))
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "media_name")
        assert len(stub.requests) == 1


async def test_other_members_with_this_name_pass(engine: Any, weft: Any) -> None:
    schema = {"type": "object", "properties": {"uuid": {"type": "string"}}}
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    message = {"role": "user", "content": 'its "uuid": 7, \u00e9'}
    async with engine() as stub, weft(stub) as gateway:
        await gateway.call(body={"messages": [message], "tools": [tool]})
        assert stub.requests[0].json["messages"] == [message]
        assert stub.requests[0].json["tools"] == [tool]
