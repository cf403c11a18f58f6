"""Finished sessions stay listed, refused calls have receipts, and the times of a receipt are
ordered.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from weft_gateway.programs.table import ProcessTable

pytestmark = [pytest.mark.system, pytest.mark.anyio]


async def answer_with_report(wire: Any, request: Any) -> None:
    report = {
        "call": request.json["vllm_xargs"]["weft_call"], "service_s": 2.0, "waiting_s": 0.5,
        "prompt_tokens": 40, "cached_tokens": 16, "output_tokens": 7, "finished": True,
    }  # fmt: skip
    message = {"role": "assistant", "content": "Hello."}
    await wire.plain(
        {"choices": [{"index": 0, "message": message}]},
        headers={"x-weft-report": json.dumps(report)},
    )


async def sessions(gateway: Any, **options: Any) -> dict[str, dict[str, Any]]:
    got = (await gateway.client.get("/v1/sessions", params=options)).json()
    return {session["id"]: session for session in got["data"]}


async def expire_all(table: ProcessTable) -> None:
    """Expire all programs, as after a long time without calls."""
    await table.expire(4e9, 1.0)


async def test_a_finished_program_stays_listed_with_its_id_source(engine, weft):
    async with engine(script=answer_with_report) as stub, weft(stub) as gateway:
        await gateway.call(headers={"x-session-id": "run"})
        await gateway.client.post("/v1/sessions", json={"id": "waiting"})
        found = await sessions(gateway)
        assert (found["run"]["status"], found["run"]["known_by"]) == ("idle", "x-session-id")
        assert found["waiting"]["known_by"] is None
        await expire_all(gateway.parts.table)
        assert (await gateway.parts.table.counts()).alive == 0
        found = await sessions(gateway)
        assert found.keys() == {"run"}
        run = found["run"]
        assert (run["status"], run["known_by"], run["service_s"]) == (
            "finished",
            "x-session-id",
            2.0,
        )
        assert (await gateway.client.get("/v1/sessions/run")).json() == run
        # A new call reactivates the session, which is listed once.
        await gateway.call(headers={"x-session-id": "run"})
        assert (await sessions(gateway))["run"]["status"] == "idle"


async def test_a_deleted_session_is_not_listed(engine, weft):
    async with engine(script=answer_with_report) as stub, weft(stub) as gateway:
        for name in ("one", "two"):
            await gateway.call(headers={"x-session-id": name})
        deleted = await gateway.client.delete("/v1/sessions/one")
        assert (deleted.status_code, deleted.json()["known_by"]) == (200, "x-session-id")
        await expire_all(gateway.parts.table)
        assert (await sessions(gateway)).keys() == {"two"}
        assert (await gateway.client.get("/v1/sessions/one")).status_code == 404
        second = await gateway.client.delete("/v1/sessions/two")
        assert (second.status_code, second.json()["service_s"]) == (200, 2.0)
        assert await sessions(gateway) == {}
        assert (await gateway.client.delete("/v1/sessions/two")).status_code == 404


async def test_pages_list_active_and_finished_sessions_in_one_order(engine, weft):
    async with engine(script=answer_with_report) as stub, weft(stub) as gateway:
        for name in ("a", "c", "e"):
            await gateway.call(headers={"x-session-id": name})
        await expire_all(gateway.parts.table)
        for name in ("b", "d"):
            await gateway.call(headers={"x-session-id": name})
        listed, after = [], ""
        for _ in range(5):
            params = {"limit": 2} | ({"after": after} if after else {})
            page = (await gateway.client.get("/v1/sessions", params=params)).json()
            listed += [session["id"] for session in page["data"]]
            after = page["last_id"]
            if not page["has_more"]:
                break
        assert listed == ["a", "b", "c", "d", "e"]


async def test_usage_is_null_without_reports(engine, weft):
    async with engine(weft=False) as stub, weft(stub) as gateway:
        await gateway.call(headers={"x-session-id": "run"})
        session = (await gateway.client.get("/v1/sessions/run")).json()
        assert session["service_s"] is session["waiting_s"] is session["prompt_tokens"] is None
        trace = (await gateway.client.get("/v1/sessions/run/story")).json()
        assert trace["threads"][0]["service_s"] is trace["critical_path"]["service_s"] is None
        fresh = (await gateway.client.post("/v1/sessions", json={"id": "new"})).json()
        assert fresh["service_s"] == 0.0, "the new session has usage"


@pytest.mark.parametrize("raw", [b"{bad", b"[]", b'{"model": "nobody"}'])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/p/run/v1/chat/completions"])
async def test_a_refused_call_is_listed_in_the_trace_of_its_program(engine, weft, raw, path):
    named = {} if path.startswith("/p/") else {"x-weft-program": "run"}
    async with engine(script=answer_with_report) as stub, weft(stub) as gateway:
        await gateway.call(headers={"x-weft-program": "run"})
        headers = {**named, "x-request-id": "mine", "content-type": "application/json"}
        got = await gateway.client.post(path, content=raw, headers=headers)
        assert got.status_code >= 400
        trace = (await gateway.client.get("/v1/sessions/run/story")).json()
        assert [receipt["request_id"] for receipt in trace["refused"]] == ["mine"]


async def test_a_call_without_a_replica_leaves_a_receipt_in_its_session(weft):
    async with weft() as gateway:
        got = await gateway.call(headers={"x-request-id": "mine", "x-session-id": "run"})
        assert (got.status_code, got.json()["error"]["code"]) == (503, "no_replica")
        receipt = (await gateway.client.get("/v1/receipts/mine")).json()
        assert (receipt["session"], receipt["error"]) == ("run", "no_replica")
        assert (receipt["outcome"], receipt["status"]) == ("refused", 503)
        trace = (await gateway.client.get("/v1/sessions/run/story")).json()
        assert (trace["receipts"], trace["refused"]) == ([], [receipt])


async def test_the_first_byte_comes_before_the_end(engine, weft):
    async with engine(script=answer_with_report) as stub, weft(stub) as gateway:
        for number in range(20):
            await gateway.call(headers={"x-request-id": f"r{number}"})
            times = (await gateway.client.get(f"/v1/receipts/r{number}")).json()["times"]
            assert 0 < times["overhead_s"] <= times["first_byte_s"] <= times["total_s"]
