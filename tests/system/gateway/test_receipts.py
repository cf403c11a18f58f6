"""Receipts and program traces over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from typing import Any
from urllib.parse import quote

import pytest
from weft_engine.wire import CallReport
from weft_gateway.api import lists, sessions
from weft_gateway.programs.identity import tenant_of
from weft_gateway.programs.memory import MemoryTable

KEYS = ("own", "mine")

pytestmark = [pytest.mark.system, pytest.mark.anyio]

NAMED = {"x-session-id": "run", "x-weft-thread": "ignored"}


async def report_usage(wire: Any, request: Any) -> None:
    call = request.json["vllm_xargs"]["weft_call"]
    report = {
        "call": call, "service_s": 2.0, "waiting_s": 0.5, "prompt_tokens": 40, "cached_tokens": 16,
        "output_tokens": 7, "policy": "plas", "queue_path": [0, 1], "finished": True,
        "hints": ["weft_tags=applied"],
    }  # fmt: skip
    await wire.plain({}, headers={"x-weft-report": json.dumps(report)})


async def test_receipt_story_and_metrics_tell_a_wait_for_memory(engine: Any, weft: Any) -> None:
    waits = [(3.2, 18_000, 2), (0.0, 0, 0)]

    async def report(wire: Any, request: Any) -> None:
        call = request.json["vllm_xargs"]["weft_call"]
        wait_s, tokens, ahead = waits.pop(0)
        report = CallReport(
            call, memory_wait_s=wait_s, memory_tokens=tokens, programs_ahead=ahead
        ).to_json()
        await wire.plain({}, headers={"x-weft-report": report})

    async with engine(script=report) as stub, weft(stub) as gateway:
        for _ in range(2):
            await gateway.call(headers=NAMED)
        story = (await gateway.client.get("/v1/sessions/run/story")).json()
        text = "waited 3.2 s for memory: needs 18k tokens, 2 programs ahead"
        first = {
            "memory_wait_s": 3.2, "memory_tokens": 18_000, "programs_ahead": 2, "text": text,
        }  # fmt: skip
        assert [one["memory"] for one in story["receipts"]] == [first, None]
        receipt = await gateway.client.get(f"/v1/receipts/{story['receipts'][0]['request_id']}")
        assert receipt.json()["memory"] == first
        metrics = (await gateway.client.get("/metrics")).text
        assert 'weft_memory_wait_seconds_total{replica="r0"} 3.2\n' in metrics


async def test_a_trace_includes_ended_threads(engine: Any, weft: Any) -> None:
    async with engine(script=report_usage) as stub, weft(stub) as gateway:
        calls = (("main", ""), ("left", "main"), ("main", ""))
        for number, (thread, parent) in enumerate(calls):
            headers = {"x-weft-program": "run", "x-weft-thread": thread, "x-weft-parent": parent}
            await gateway.call(headers={**headers, "x-request-id": f"r{number}"})
        assert (await gateway.client.get("/v1/sessions/run")).json()["threads"] == []
        trace = (await gateway.client.get("/v1/sessions/run/story")).json()
        threads = [(t["thread"], t["parent"], t["calls"], t["ended"]) for t in trace["threads"]]
        assert threads == [("main", None, 2, "ok"), ("left", "main", 1, "ok")]
        assert trace["threads"][0]["service_s"] == 4.0
        path = trace["critical_path"]
        assert (path["service_s"], path["requests"]) == (6.0, ["r0", "r1", "r2"])
        session = (await gateway.client.get("/v1/sessions/run")).json()
        assert session["critical_path_s"] == 6.0


async def test_a_receipt_ends_with_its_call_after_a_slow_opening(
    engine: Any, weft: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A longer receipt would overlap with the next call and shorten the critical path."""
    opened = MemoryTable.open_call

    async def slow(table: MemoryTable, opening: Any) -> Any:
        await asyncio.sleep(0.2)
        return await opened(table, opening)

    monkeypatch.setattr(MemoryTable, "open_call", slow)
    async with engine(script=report_usage) as stub, weft(stub) as gateway:
        await gateway.call(headers={**NAMED, "x-request-id": "r"})
        answered = time.time()
        receipt = (await gateway.client.get("/v1/receipts/r")).json()
        assert receipt["arrived_at"] + receipt["times"]["total_s"] <= answered


async def test_a_receipt_lists_unreachable_replicas(engine: Any, weft: Any) -> None:
    async with contextlib.AsyncExitStack() as dying, engine(script=report_usage) as stub:
        first = await dying.enter_async_context(engine(script=report_usage))
        async with weft(first, stub) as gateway:
            await dying.aclose()
            receipts = []
            for number in range(2):
                await gateway.call(headers={**NAMED, "x-request-id": f"r-{number}"})
                receipts.append((await gateway.client.get(f"/v1/receipts/r-{number}")).json())
            failed = [r["place"]["failed"] for r in receipts if r["place"]["failed"]]
            assert failed == [[{"replica": "r0", "error": "replica_unreachable"}]]


async def test_receipts_are_visible_to_their_tenant_and_bounded(engine: Any, weft: Any) -> None:
    async with engine(script=report_usage) as stub, weft(stub, receipts=2) as gateway:
        mine = {"authorization": "Bearer mine"}
        for number in range(3):
            await gateway.call(headers={**mine, "x-request-id": f"r{number}"})
        codes = [
            (await gateway.client.get(f"/v1/receipts/r{n}", headers=mine)).status_code
            for n in range(3)
        ]
        assert codes == [404, 200, 200]
        theirs = await gateway.client.get("/v1/receipts/r2")
        assert (theirs.status_code, theirs.json()["error"]["code"]) == (404, "receipt_not_found")


async def test_calls_succeed_with_receipts_disabled(engine: Any, weft: Any) -> None:
    async with engine(script=report_usage) as stub, weft(stub, receipts=0) as gateway:
        assert (await gateway.call(headers={"x-request-id": "r"})).status_code == 200
        assert (await gateway.client.get("/v1/receipts/r")).status_code == 404
        unknown = await gateway.client.get("/v1/sessions/nobody/story")
        assert unknown.json()["error"]["code"] == "session_not_found"


@pytest.mark.parametrize("request_id", ["a/b", "a%20b", "x:y"])
async def test_any_request_id_finds_its_receipt(engine: Any, weft: Any, request_id: str) -> None:
    async with engine(script=report_usage) as stub, weft(stub) as gateway:
        await gateway.call(headers={**NAMED, "x-request-id": request_id})
        encoded = quote(request_id, safe="")
        got = await gateway.client.get(f"/v1/receipts/{encoded}")
        assert (got.status_code, got.json()["request_id"]) == (200, request_id)


async def test_long_lists_are_written_over_several_turns(
    engine: Any, weft: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "_A_TURN", 4)
    monkeypatch.setattr(sessions, "_A_TURN", 4)
    async with engine(script=report_usage) as one, weft(one) as gateway:
        for number in range(10):
            name = f"program-{number}"
            await gateway.call(headers={"x-session-id": name})
            await gateway.call(headers={"x-session-id": "long", "x-request-id": name})
        taken: list[str] = []
        turns = gateway.parts.turns
        take = turns.take

        async def counted(tenant: str, cost: float) -> None:
            taken.append(tenant)
            await take(tenant, cost)

        monkeypatch.setattr(turns, "take", counted)
        story = (await gateway.client.get("/v1/sessions/long/story")).json()
        assert [receipt["request_id"] for receipt in story["receipts"]] == [
            f"program-{number}" for number in range(10)
        ]
        # The last turn is that of refused calls.
        assert taken == [tenant_of(KEYS[0])] * (3 + 1)
        listed = (await gateway.client.get("/v1/sessions?limit=100")).json()["data"]
        assert len(listed) == 11
        # The rows are read in four turns, and written in three.
        assert len(taken) == 3 + 1 + 4 + 3
