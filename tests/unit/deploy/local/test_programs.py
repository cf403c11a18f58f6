"""The programs that `weft up --demo` plays."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest
from weft_deploy.local import programs

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("stopped", [False, True])
async def test_a_program_follows_from_its_number(
    monkeypatch: pytest.MonkeyPatch, stopped: bool
) -> None:
    seen: list[tuple[str, str, int]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content) if request.content else {"messages": []}
        name = request.headers.get("x-weft-program", request.url.path)
        seen.append((request.method, name, len(body["messages"])))
        return httpx.Response(403 if stopped else 200)

    async def at_once(seconds: float) -> None:
        assert seconds >= 0

    monkeypatch.setattr(asyncio, "sleep", at_once)
    runs = []
    for _ in range(2):
        seen.clear()
        transport = httpx.MockTransport(answer)
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
            await programs.play(client, "m", 7)
        runs.append(list(seen))
    assert runs[0] == runs[1]
    (*calls, last) = seen
    if stopped:
        assert not calls
        return
    assert [count for _, _, count in calls] == [2 + 2 * n for n in range(len(calls))]
    assert len(calls) >= 3
    assert last[:2] == ("DELETE", f"/v1/sessions/{calls[0][1]}")
