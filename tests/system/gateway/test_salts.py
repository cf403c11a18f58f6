"""Salts of the prefix cache: each tenant has a separate salt on every replica that may run vLLM."""

from __future__ import annotations

from typing import Any

import pytest
from weft_gateway.engine.engine_request import tenant_salt
from weft_gateway.programs.identity import tenant_of

pytestmark = [pytest.mark.system, pytest.mark.anyio]

SALT = tenant_salt(tenant_of("sk-mine"))
KEY = {"authorization": "Bearer sk-mine"}


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
        assert (await gateway.call(body={"cache_salt": SALT})).status_code == 200
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
