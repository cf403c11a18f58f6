"""Keep-alives of a client that does not read."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from weft_gateway.api.keep_alive import KeepAlive
from weft_gateway.calls.call import Call, Hooks
from weft_gateway.engine.endpoints import BY_PATH

pytestmark = pytest.mark.anyio


async def test_they_do_not_accumulate() -> None:
    writable = asyncio.Event()
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        await writable.wait()
        sent.append(message)

    endpoint = BY_PATH["/v1/messages"]
    keep_alive = KeepAlive(Call("call-1", endpoint, [], b"req-1", 0.0, Hooks()), send)
    for _ in range(3):
        keep_alive.beat()
    writable.set()
    await asyncio.sleep(0)
    assert sent == []
    keep_alive.beat()
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
    assert sent[1]["body"] == endpoint.keep_alive
