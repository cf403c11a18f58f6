"""Prompt splitting over HTTP: handles, turns that extend them, and handles that are not used."""

from __future__ import annotations

import asyncio
import json
from time import time
from typing import Any

import pytest
from support.turns import CALLS, RESULT, SYSTEM, USER
from support.waiting import DEADLINE_S
from weft_gateway.calls import prefills
from weft_gateway.engine.errors import ReplicaFault

KEYS = ("own", "someone else")

pytestmark = [pytest.mark.system, pytest.mark.anyio]

PREFIX = [SYSTEM, USER, CALLS]
NAMED = {"x-session-id": "run"}


def report_script(**report: Any):
    """Return the script of an engine that sends a report with each call."""

    async def script(wire: Any, request: Any) -> None:
        call = request.json["vllm_xargs"]["weft_call"]
        answer = {"call": call, "service_s": 0.5, "prompt_tokens": 100, "finished": True, **report}
        await wire.plain({"id": "x", "choices": []}, headers={"x-weft-report": json.dumps(answer)})

    return script


async def submit(gateway: Any, **body: Any) -> Any:
    return await gateway.client.post(
        "/v1/hints/prefill", json={"model": "tiny", "messages": PREFIX, **body}, headers=NAMED
    )


async def done(gateway: Any, handle: str) -> Any:
    async with asyncio.timeout(DEADLINE_S):
        while True:
            shown = (await gateway.client.get(f"/v1/hints/prefill/{handle}")).json()
            if shown["status"] != "running":
                return shown
            await asyncio.sleep(0.01)


async def test_the_only_replica_is_used_despite_its_open_circuit(engine: Any, weft: Any) -> None:
    async with (
        engine(script=report_script(), canned={"/weft/kv": {}}) as only,
        weft(only) as gateway,
    ):
        registry = gateway.parts.registry
        for _ in range(3):
            registry.failed("r0", ReplicaFault("The replica answered 500."))
        assert not registry["r0"].circuit.healthy
        submitted = await submit(gateway)
        assert submitted.status_code == 201
        assert (await done(gateway, submitted.json()["id"]))["status"] == "done"


def kv(stub: Any) -> list[Any]:
    return [request.json for request in stub.other if request.target == "/weft/kv"]


async def test_a_prefix_is_prefilled_and_its_turn_uses_the_same_replica(
    engine: Any, weft: Any
) -> None:
    async with (
        engine(script=report_script(), canned={"/weft/kv": {}}) as one,
        engine(script=report_script(), canned={"/weft/kv": {}}) as two,
        weft(one, two) as gateway,
    ):
        submitted = await submit(gateway, ttl_s=20)
        assert submitted.status_code == 201
        handle = submitted.json()["id"]
        assert submitted.json()["session_id"] == "run"
        shown = await done(gateway, handle)
        assert (shown["status"], shown["prompt_tokens"]) == ("done", 100)
        stub = {"r0": one, "r1": two}[shown["replica"]]
        (sent,) = stub.requests
        assert sent.json["messages"] == PREFIX
        assert (sent.json["max_tokens"], sent.json["add_generation_prompt"]) == (1, False)
        assert sent.json["vllm_xargs"]["weft_tags"][1] == 5
        assert "weft_retain" not in sent.json["vllm_xargs"]
        body = {"model": "tiny", "messages": [*PREFIX, RESULT]}
        path = f"/v1/hints/prefill/{handle}/extend"
        turn = await gateway.client.post(path, json=body, headers=NAMED)
        assert turn.status_code == 200
        # Round robin alone would use the other replica.
        assert turn.headers["x-weft-replica"] == shown["replica"]
        assert turn.headers["x-weft-program"] == "run"
        again = await gateway.client.post(path, json=body, headers=NAMED)
        assert again.json()["error"]["code"] == "prefill_not_found", (
            "an extended handle still exists"
        )
        receipt = (await gateway.client.get("/v1/sessions/run/story")).json()["receipts"][-1]
        assert receipt["place"]["reason"] == "its prefill is there"
        assert "add_generation_prompt" not in stub.requests[1].json
        session = (await gateway.client.get("/v1/sessions/run")).json()
        assert (session["calls"], session["calls_in_flight"]) == (2, 0)


async def test_saved_seconds_are_reported_in_receipt_header_and_metrics(
    engine: Any, weft: Any
) -> None:
    cached = iter((0, 96))

    async def script(wire: Any, request: Any) -> None:
        await asyncio.sleep(0.05)
        await report_script(cached_tokens=next(cached))(wire, request)

    async with engine(script=script) as stub, weft(stub) as gateway:
        handle = (await submit(gateway)).json()["id"]
        await done(gateway, handle)
        turn = await gateway.client.post(
            f"/v1/hints/prefill/{handle}/extend",
            json={"model": "tiny", "messages": [*PREFIX, RESULT]},
            headers={**NAMED, "x-request-id": "turn-2", "x-weft-saved-s": "?"},
        )
        header = turn.headers["x-weft-saved-s"]
        receipt = (await gateway.client.get("/v1/receipts/turn-2")).json()
        saved = receipt["saved_s"]["prefill"]
        # Caching saves 96 of 100 tokens, that is at most 0.48 s of a service of 0.5 s.
        assert 0.0 < saved <= 0.48
        assert header == f"prefill={saved:.6f}"
        trace = (await gateway.client.get("/v1/sessions/run/story")).json()
        assert trace["saved_s"]["prefill"] == saved
        metrics = (await gateway.client.get("/metrics")).text
        assert 'weft_saved_seconds_total{overlap="prefill"}' in metrics


async def test_a_turn_with_a_different_prefix_is_refused_and_keeps_the_handle(
    engine: Any, weft: Any
) -> None:
    async with engine(script=report_script()) as stub, weft(stub) as gateway:
        handle = (await submit(gateway)).json()["id"]
        await done(gateway, handle)
        for messages in ([SYSTEM, RESULT], [SYSTEM], [*PREFIX[:2], RESULT, CALLS]):
            wrong = await gateway.client.post(
                f"/v1/hints/prefill/{handle}/extend",
                json={"model": "tiny", "messages": messages},
                headers=NAMED,
            )
            assert wrong.status_code == 409
            assert wrong.json()["error"]["code"] == "prefill_prefix_mismatch"
        right = await gateway.client.post(
            f"/v1/hints/prefill/{handle}/extend",
            json={"model": "tiny", "messages": [*PREFIX, RESULT]},
            headers=NAMED,
        )
        assert right.status_code == 200


async def test_handles_are_visible_to_their_tenant_and_expire(
    engine: Any, weft: Any, until: Any
) -> None:
    async with (
        engine(script=report_script(), canned={"/weft/kv": {}}) as stub,
        weft(stub) as gateway,
    ):
        handle = (await submit(gateway, ttl_s=0.2)).json()["id"]
        other = {"authorization": "Bearer someone else"}
        path = f"/v1/hints/prefill/{handle}"
        stranger = await gateway.client.get(path, headers=other)
        assert (stranger.status_code, stranger.json()["error"]["code"]) == (
            404,
            "prefill_not_found",
        )
        await until(lambda: len(gateway.parts.prefills) == 0)
        # No turn extends the handle: it expires and the engine releases it.
        await until(lambda: [sent["action"] for sent in kv(stub)] == ["give_up"])
        expired = await gateway.client.post(
            f"{path}/extend", json={"model": "tiny", "messages": []}
        )
        assert expired.status_code == 404


async def test_deleting_a_running_prefill_aborts_it_in_the_engine(
    engine: Any, weft: Any, until: Any
) -> None:
    async def script(wire: Any, request: Any) -> None:
        await wire.closed()

    async with engine(script=script, canned={"/weft/kv": {}}) as stub, weft(stub) as gateway:
        handle = (await submit(gateway)).json()["id"]
        await until(lambda: stub.requests)
        discarded = await gateway.client.delete(f"/v1/hints/prefill/{handle}")
        assert discarded.json()["deleted"] is True
        assert [sent["action"] for sent in kv(stub)] == ["give_up"]
        assert (await gateway.client.get(f"/v1/hints/prefill/{handle}")).status_code == 404
        await until(lambda: gateway.in_flight() == 0)


async def test_an_early_turn_aborts_the_prefill_and_is_served(engine: Any, weft: Any) -> None:
    async def script(wire: Any, request: Any) -> None:
        if request.json["max_tokens"] == 1:
            await wire.closed()
        else:
            await report_script()(wire, request)

    async with engine(script=script) as stub, weft(stub) as gateway:
        handle = (await submit(gateway)).json()["id"]
        turn = await gateway.client.post(
            f"/v1/hints/prefill/{handle}/extend",
            json={"model": "tiny", "messages": [*PREFIX, RESULT], "max_tokens": 9},
            headers=NAMED,
        )
        assert turn.status_code == 200
        # An aborted prefill does not count as a failure of the replica.
        assert all(replica.circuit.healthy for replica in gateway.parts.registry)


async def test_a_turn_is_served_after_its_prefill_failed(engine: Any, weft: Any) -> None:
    async def script(wire: Any, request: Any) -> None:
        if request.json.get("max_tokens") == 1:
            await wire.plain({"error": {"message": "no such field"}}, "400 Bad Request")
        else:
            await report_script()(wire, request)

    async with engine(script=script) as stub, weft(stub) as gateway:
        handle = (await submit(gateway)).json()["id"]
        shown = await done(gateway, handle)
        assert shown["status"] == "failed"
        assert "no such field" in shown["detail"]
        turn = await gateway.client.post(
            f"/v1/hints/prefill/{handle}/extend",
            json={"model": "tiny", "messages": [*PREFIX, RESULT]},
        )
        assert (turn.status_code, turn.headers["x-weft-program"]) == (200, "run")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"messages": []}, 400),
        ({"messages": "text"}, 400),
        ({"ttl_s": -1}, 400),
        ({"ttl_s": "soon"}, 400),
        ({"model": "unknown"}, 404),
    ],
)
async def test_invalid_prefills_are_refused(engine: Any, weft: Any, body: Any, status: int) -> None:
    async with engine(script=report_script()) as stub, weft(stub) as gateway:
        refused = await submit(gateway, **body)
        assert refused.status_code == status
        assert refused.json()["error"]["code"]
        assert stub.requests == []


async def test_a_prefill_is_used_by_one_turn(engine: Any, weft: Any) -> None:
    async with engine(script=report_script(cached_tokens=0)) as stub, weft(stub) as gateway:
        stub.script = report_script(cached_tokens=0)
        handles = []
        for _ in range(300):  # More than the limit on open handles.
            submitted = await submit(gateway)
            assert submitted.status_code == 201
            handles.append(submitted.json()["id"])
            await done(gateway, handles[-1])
            stub.script = report_script(cached_tokens=100)
            turn = await gateway.call(body={"messages": [*PREFIX, RESULT]}, headers=NAMED)
            assert turn.status_code == 200
            stub.script = report_script(cached_tokens=0)
        assert len(gateway.parts.prefills) == 0
        stub.script = report_script(cached_tokens=100)
        before = (await gateway.client.get("/v1/sessions/run/story")).json()["saved_s"]
        await gateway.call(body={"messages": [*PREFIX, RESULT, USER]}, headers=NAMED)
        after = (await gateway.client.get("/v1/sessions/run/story")).json()["saved_s"]
        assert before == after


async def test_a_failed_turn_keeps_the_prefill_until_it_expires(
    engine: Any, weft: Any, until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def script(wire: Any, request: Any) -> None:
        if request.json.get("max_tokens") == 1:
            await report_script()(wire, request)
        else:
            await wire.plain({"error": {"message": "no"}}, "400 Bad Request")

    async with engine(script=script, canned={"/weft/kv": {}}) as stub, weft(stub) as gateway:
        handle = (await submit(gateway, ttl_s=60)).json()["id"]
        await done(gateway, handle)
        turn = await gateway.client.post(
            f"/v1/hints/prefill/{handle}/extend",
            json={"model": "tiny", "messages": [*PREFIX, RESULT]},
            headers=NAMED,
        )
        assert turn.status_code == 400
        assert len(gateway.parts.prefills) == 1
        monkeypatch.setattr(prefills, "time", lambda: time() + 61)
        await until(lambda: [sent["action"] for sent in kv(stub)] == ["give_up"])
        assert len(gateway.parts.prefills) == 0


async def test_extension_by_another_program_releases_the_pinned_blocks(
    engine: Any, weft: Any, until: Any
) -> None:
    async with (
        engine(script=report_script(), canned={"/weft/kv": {}}) as stub,
        weft(stub) as gateway,
    ):
        handle = (await submit(gateway)).json()["id"]
        await done(gateway, handle)
        turn = await gateway.client.post(
            f"/v1/hints/prefill/{handle}/extend",
            json={"model": "tiny", "messages": [*PREFIX, RESULT]},
            headers={"x-session-id": "other"},
        )
        assert turn.status_code == 200
        await until(lambda: [sent["action"] for sent in kv(stub)] == ["give_up"])


async def test_a_prefill_without_an_id_belongs_to_the_program_of_its_messages(
    engine: Any, weft: Any
) -> None:
    answer = "I shall look for the way from Lyon to Turin."
    call = {"id": "c", "type": "function", "function": {"name": "far", "arguments": "{}"}}
    answered = {"role": "assistant", "content": answer, "tool_calls": [call]}

    async def script(wire: Any, request: Any) -> None:
        await wire.plain({"choices": [{"index": 0, "message": answered}]})

    async with engine(script=script) as stub, weft(stub) as gateway:
        first = await gateway.call(body={"messages": [SYSTEM, USER]})
        program = first.headers["x-weft-program"]
        turn = {"model": "tiny", "messages": [SYSTEM, USER, answered]}
        submitted = await gateway.client.post("/v1/hints/prefill", json=turn)
        assert submitted.json()["session_id"] == program
        handle = submitted.json()["id"]
        await done(gateway, handle)
        turn["messages"] = [*turn["messages"], RESULT]
        extended = await gateway.client.post(f"/v1/hints/prefill/{handle}/extend", json=turn)
        assert extended.headers["x-weft-program"] == program
        turn["messages"] = [*turn["messages"], answered, RESULT]
        assert (await gateway.call(body=turn)).headers["x-weft-program"] == program


@pytest.mark.parametrize("wrong", [{"messages": [1]}, {"tools": "abc"}])
async def test_an_invalid_chat_is_refused_as_a_prefill(engine: Any, weft: Any, wrong: Any) -> None:
    async with engine(script=report_script()) as stub, weft(stub) as gateway:
        refused = await submit(gateway, **wrong)
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "prefill_invalid")


async def test_a_too_deep_prefill_is_refused_at_any_depth(engine: Any, weft: Any) -> None:
    async with engine(script=report_script()) as stub, weft(stub) as gateway:
        codes = []
        for depth in range(230, 270):
            deep: Any = 1
            for _ in range(depth):
                deep = [deep]
            got = await submit(gateway, messages=[{"role": "user", "content": deep}])
            codes.append(got.json()["error"]["code"] if got.is_error else "")
        assert list(dict.fromkeys(codes)) == ["", "too_deeply_nested", "prefill_invalid"]
