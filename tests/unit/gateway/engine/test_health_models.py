"""Health checks of a replica whose models have changed."""

from __future__ import annotations

import httpx
import pytest
import respx
from weft_gateway.engine.fetch import EngineClient
from weft_gateway.engine.health import HealthLoop
from weft_gateway.engine.pool import Timeouts
from weft_gateway.engine.registry import Registry

pytestmark = pytest.mark.anyio

URL = "http://engine"


async def test_a_replica_that_misses_a_model_is_asked_for_its_models_again() -> None:
    router = respx.Router(assert_all_called=False)
    router.get(f"{URL}/health").respond(200)
    router.get(f"{URL}/weft/state").respond(404)
    router.get(f"{URL}/metrics").respond(404)
    router.get(f"{URL}/v1/models").respond(json={"data": [{"id": "m", "owned_by": "vllm"}]})
    registry = Registry({"r0": URL}, Timeouts(1, 1, 1))
    async with httpx.AsyncClient(transport=httpx.MockTransport(router.async_handler)) as client:
        loop = HealthLoop(registry, EngineClient(client, ""), 1.0)
        await loop.check_all()
        router.get(f"{URL}/v1/models").respond(json={"data": [{"id": "n", "owned_by": "vllm"}]})
        await loop.check_all()
        assert registry["r0"].served == {"m"}
        registry.doubt("r0")
        assert registry.suspicion.is_set()
        await loop.check_all()
        assert registry["r0"].served == {"n"}
        assert not registry["r0"].doubted
