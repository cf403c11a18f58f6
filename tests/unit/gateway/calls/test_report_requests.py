"""Requests for the reports of calls whose clients have disconnected."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from weft_gateway.calls import engines
from weft_gateway.calls.engines import Engines
from weft_gateway.engine.engine_request import ReplicaKind


class Client:
    """Records the requests, none of which is answered."""

    def __init__(self) -> None:
        self.paths: list[str] = []

    async def fetch(self, replica: Any, path: str, *_: Any) -> Any:
        self.paths.append(path)
        raise httpx.ReadTimeout("no answer")


def test_reports_of_many_calls_are_requested_one_after_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engines, "_ASK_EVERY_S", 0.02)

    async def main() -> None:
        client, registry = Client(), {"r": SimpleNamespace(kind=ReplicaKind.WEFT)}
        sender: Any = Engines(registry, client, None, None, None, None, False)  # type: ignore[arg-type]
        calls = [SimpleNamespace(id=f"call-{n}", replica="r") for n in range(4)]
        tasks = [asyncio.create_task(sender.ask_report(call)) for call in calls]
        await asyncio.sleep(0)
        assert client.paths == ["/weft/calls/call-0"]
        assert await asyncio.gather(*tasks) == [None] * 4
        assert client.paths == [f"/weft/calls/call-{n}" for n in range(4)]

    asyncio.run(main())
