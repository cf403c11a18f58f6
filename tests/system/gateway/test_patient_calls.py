"""Calls that can wait (the hint `batch`) beside calls of other clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from support.http_runs import chat
from support.waiting import until
from weft_gateway.runs import patient

pytestmark = [pytest.mark.system, pytest.mark.anyio]

SLOTS = 8
# Beside clients, half of eight slots.
WINDOW = 4
WAITS = {"x-weft-batch": "1"}


class SlowEngine:
    """An engine whose calls end when the test says so."""

    def __init__(self) -> None:
        self.over = asyncio.Event()
        self.begun = 0

    async def script(self, wire: Any, request: Any) -> None:
        self.begun += 1
        await self.over.wait()
        await chat(wire, request)

    async def reach(self, calls: int) -> None:
        """Wait until this many calls are at the engine."""
        await until(lambda: self.begun >= calls, f"{calls} calls at the engine")


def ask(gateway: Any, headers: dict[str, str], **more: Any) -> asyncio.Task[Any]:
    body = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], **more}
    return asyncio.create_task(gateway.call(body=body, headers=headers))


@asynccontextmanager
async def shared(
    engine: Any, weft: Any
) -> AsyncIterator[tuple[SlowEngine, Any, asyncio.Task[Any]]]:
    """A gateway whose engine serves a chat of another client."""
    held = SlowEngine()
    async with engine(script=held.script) as stub, weft(stub) as gateway:
        for replica in gateway.parts.registry:
            replica.slots = SLOTS
        client = ask(gateway, {})
        await held.reach(1)
        yield held, gateway, client
        held.over.set()
        assert (await client).status_code == 200
        assert not gateway.parts.table.in_flight().get("r0", 0)


async def receipt(gateway: Any, answer: Any) -> dict[str, Any]:
    path = f"/v1/receipts/{answer.headers['x-request-id']}"
    found: dict[str, Any] = (await gateway.client.get(path)).json()
    return found


async def test_calls_that_can_wait_use_what_clients_leave(engine: Any, weft: Any) -> None:
    async with shared(engine, weft) as (held, gateway, _):
        ways: list[tuple[dict[str, str], dict[str, Any]]] = [
            (WAITS, {}), ({}, {"weft": {"batch": True}}), ({}, {"service_tier": "flex"}),
        ]  # fmt: skip
        calls = [ask(gateway, headers, **body) for headers, body in ways * 7]
        await held.reach(1 + WINDOW)
        await asyncio.sleep(0.3)
        assert held.begun == 1 + WINDOW
        # A client's next call does not wait.
        chats = [ask(gateway, {}) for _ in range(3)]
        await held.reach(1 + WINDOW + 3)
        held.over.set()
        answers = await asyncio.gather(*calls, *chats)
        assert {answer.status_code for answer in answers} == {200}
        receipts = [await receipt(gateway, answer) for answer in answers[: len(calls)]]
        fates = {one["fate"] for each in receipts for one in each["hints"]}
        assert fates == {"applied: the call waits while other clients need the replicas"}


async def test_they_pass_while_no_client_is_there(engine: Any, weft: Any) -> None:
    held = SlowEngine()
    async with engine(script=held.script) as stub, weft(stub) as gateway:
        calls = [ask(gateway, WAITS) for _ in range(3 * SLOTS)]
        await held.reach(3 * SLOTS)
        held.over.set()
        assert {answer.status_code for answer in await asyncio.gather(*calls)} == {200}


async def test_a_client_that_leaves_frees_its_place(engine: Any, weft: Any) -> None:
    async with shared(engine, weft) as (held, gateway, _):
        calls = [ask(gateway, WAITS) for _ in range(WINDOW + 3)]
        await held.reach(1 + WINDOW)
        # One that runs, and one that waits.
        for call in (calls[0], calls[-1]):
            call.cancel()
        await held.reach(1 + WINDOW + 1)
        held.over.set()
        answers = await asyncio.gather(*calls, return_exceptions=True)
        ended = [one.status_code for one in answers if not isinstance(one, BaseException)]
        assert ended == [200] * (WINDOW + 1)
        await until(lambda: not gateway.parts.sender.sources, "the end of the queue")


async def test_no_call_waits_without_end(engine: Any, weft: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(patient, "_MOST_S", 0.2)
    async with shared(engine, weft) as (held, gateway, _):
        calls = [ask(gateway, WAITS) for _ in range(3 * SLOTS)]
        await held.reach(1 + 3 * SLOTS)
        held.over.set()
        assert {answer.status_code for answer in await asyncio.gather(*calls)} == {200}


async def test_an_unknown_model_is_an_error_at_once(engine: Any, weft: Any) -> None:
    async with shared(engine, weft) as (_, gateway, _):
        assert (await ask(gateway, WAITS, model="large")).status_code == 404
