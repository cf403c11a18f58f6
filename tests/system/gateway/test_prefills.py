"""Prompt splitting over HTTP: handles, turns that extend them, and what becomes of those that do
not come."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from support.turns import CALLS, RESULT, SYSTEM, USER
from weft_gateway.engine.errors import ReplicaFault

pytestmark = [pytest.mark.system, pytest.mark.anyio]

PREFIX = [SYSTEM, USER, CALLS]
NAMED = {"x-session-id": "run"}


def reporting(**report: Any):
    """An engine that reports of each call; the answer echoes what was asked."""

    async def script(wire: Any, request: Any) -> None:
        call = request.json["vllm_xargs"]["weft_call"]
        told = {"call": call, "service_s": 0.5, "prompt_tokens": 100, "finished": True, **report}
        await wire.plain({"id": "x", "choices": []}, headers={"x-weft-report": json.dumps(told)})

    return script


async def announce(gateway: Any, **body: Any) -> Any:
    return await gateway.client.post(
        "/v1/hints/prefill", json={"model": "tiny", "messages": PREFIX, **body}, headers=NAMED
    )


async def done(gateway: Any, handle: str) -> Any:
    async with asyncio.timeout(10):
        while True:
            shown = (await gateway.client.get(f"/v1/hints/prefill/{handle}")).json()
            if shown["status"] != "running":
                return shown
            await asyncio.sleep(0.01)


async def test_a_replica_that_is_out_but_alive_is_asked_where_there_is_no_other(
    engine: Any, weft: Any
) -> None:
    async with (
        engine(script=reporting(), asides={"/weft/kv": {}}) as only,
        weft(only) as gateway,
    ):
        registry = gateway.parts.registry
        for _ in range(3):
            registry.failed("r0", ReplicaFault("The replica answered 500."))
        assert not registry["r0"].circuit.healthy
        submitted = await announce(gateway)
        assert submitted.status_code == 201
        assert (await done(gateway, submitted.json()["id"]))["status"] == "done"


def kv(stub: Any) -> list[Any]:
    return [request.json for request in stub.other if request.target == "/weft/kv"]


async def test_a_prefix_is_prefilled_tagged_and_pinned_and_its_turn_goes_where_it_is(
    engine: Any, weft: Any
) -> None:
    async with (
        engine(script=reporting(), asides={"/weft/kv": {}}) as one,
        engine(script=reporting(), asides={"/weft/kv": {}}) as two,
        weft(one, two) as gateway,
    ):
        submitted = await announce(gateway, ttl_s=20)
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
        # Round robin alone would take turns.
        assert turn.headers["x-weft-replica"] == shown["replica"]
        assert turn.headers["x-weft-program"] == "run"
        again = await gateway.client.post(path, json=body, headers=NAMED)
        assert again.json()["error"]["code"] == "prefill_not_found", "it is used up"
        receipt = (await gateway.client.get("/v1/sessions/run/story")).json()["receipts"][-1]
        assert receipt["place"]["reason"] == "its prefill is there"
        assert "add_generation_prompt" not in stub.requests[1].json
        session = (await gateway.client.get("/v1/sessions/run")).json()
        assert (session["calls"], session["calls_in_flight"]) == (2, 0)


async def test_seconds_saved_are_told_in_receipt_header_and_metrics(engine: Any, weft: Any) -> None:
    cached = iter((0, 96))

    async def script(wire: Any, request: Any) -> None:
        await asyncio.sleep(0.05)
        await reporting(cached_tokens=next(cached))(wire, request)

    async with engine(script=script) as stub, weft(stub) as gateway:
        handle = (await announce(gateway)).json()["id"]
        await done(gateway, handle)
        turn = await gateway.client.post(
            f"/v1/hints/prefill/{handle}/extend",
            json={"model": "tiny", "messages": [*PREFIX, RESULT]},
            headers={**NAMED, "x-request-id": "turn-2", "x-weft-saved-s": "?"},
        )
        told = turn.headers["x-weft-saved-s"]
        receipt = (await gateway.client.get("/v1/receipts/turn-2")).json()
        saved = receipt["saved_s"]["prefill"]
        # 96 of 100 tokens of a service of 0.5 s, and not more than has passed.
        assert 0.0 < saved <= 0.48
        assert told == f"prefill={saved:.6f}"
        story = (await gateway.client.get("/v1/sessions/run/story")).json()
        assert story["saved_s"]["prefill"] == saved
        metrics = (await gateway.client.get("/metrics")).text
        assert 'weft_saved_seconds_total{overlap="prefill"}' in metrics


async def test_another_turn_than_announced_is_refused_and_loses_nothing(
    engine: Any, weft: Any
) -> None:
    async with engine(script=reporting()) as stub, weft(stub) as gateway:
        handle = (await announce(gateway)).json()["id"]
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


async def test_handles_are_their_tenants_and_expire(engine: Any, weft: Any, until: Any) -> None:
    async with engine(script=reporting(), asides={"/weft/kv": {}}) as stub, weft(stub) as gateway:
        handle = (await announce(gateway, ttl_s=0.2)).json()["id"]
        other = {"authorization": "Bearer someone else"}
        path = f"/v1/hints/prefill/{handle}"
        stranger = await gateway.client.get(path, headers=other)
        assert (stranger.status_code, stranger.json()["error"]["code"]) == (
            404,
            "prefill_not_found",
        )
        await until(lambda: len(gateway.parts.prefills) == 0)
        # Nobody came for it: the engine lets go.
        await until(lambda: [sent["action"] for sent in kv(stub)] == ["give_up"])
        gone = await gateway.client.post(f"{path}/extend", json={"model": "tiny", "messages": []})
        assert gone.status_code == 404


async def test_discarded_while_it_runs_the_engine_is_told_and_nothing_stays_open(
    engine: Any, weft: Any, until: Any
) -> None:
    async def script(wire: Any, request: Any) -> None:
        await wire.closed()

    async with engine(script=script, asides={"/weft/kv": {}}) as stub, weft(stub) as gateway:
        handle = (await announce(gateway)).json()["id"]
        await until(lambda: stub.requests)
        discarded = await gateway.client.delete(f"/v1/hints/prefill/{handle}")
        assert discarded.json()["deleted"] is True
        assert [sent["action"] for sent in kv(stub)] == ["give_up"]
        assert (await gateway.client.get(f"/v1/hints/prefill/{handle}")).status_code == 404
        await until(lambda: gateway.in_flight() == 0)


async def test_a_turn_that_comes_early_stops_the_prefill_and_is_served(
    engine: Any, weft: Any
) -> None:
    async def script(wire: Any, request: Any) -> None:
        if request.json["max_tokens"] == 1:
            await wire.closed()
        else:
            await reporting()(wire, request)

    async with engine(script=script) as stub, weft(stub) as gateway:
        handle = (await announce(gateway)).json()["id"]
        turn = await gateway.client.post(
            f"/v1/hints/prefill/{handle}/extend",
            json={"model": "tiny", "messages": [*PREFIX, RESULT], "max_tokens": 9},
            headers=NAMED,
        )
        assert turn.status_code == 200
        # Stopping a prefill is no fault of the replica.
        assert all(replica.circuit.healthy for replica in gateway.parts.registry)


async def test_a_prefill_that_the_engine_refuses_harms_no_turn(engine: Any, weft: Any) -> None:
    async def script(wire: Any, request: Any) -> None:
        if request.json.get("max_tokens") == 1:
            await wire.plain({"error": {"message": "no such field"}}, "400 Bad Request")
        else:
            await reporting()(wire, request)

    async with engine(script=script) as stub, weft(stub) as gateway:
        handle = (await announce(gateway)).json()["id"]
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
async def test_bad_announcements_are_refused_and_open_nothing(
    engine: Any, weft: Any, body: Any, status: int
) -> None:
    async with engine(script=reporting()) as stub, weft(stub) as gateway:
        refused = await announce(gateway, **body)
        assert refused.status_code == status
        assert refused.json()["error"]["code"]
        assert stub.requests == []


async def test_a_prefill_saves_once_and_is_used_up_by_its_turn(engine: Any, weft: Any) -> None:
    async with engine(script=reporting(cached_tokens=0)) as stub, weft(stub) as gateway:
        stub.script = reporting(cached_tokens=0)
        handles = []
        for _ in range(300):  # More than may be open at once.
            submitted = await announce(gateway)
            assert submitted.status_code == 201
            handles.append(submitted.json()["id"])
            await done(gateway, handles[-1])
            stub.script = reporting(cached_tokens=100)
            turn = await gateway.call(body={"messages": [*PREFIX, RESULT]}, headers=NAMED)
            assert turn.status_code == 200
            stub.script = reporting(cached_tokens=0)
        assert len(gateway.parts.prefills) == 0
        stub.script = reporting(cached_tokens=100)
        before = (await gateway.client.get("/v1/sessions/run/story")).json()["saved_s"]
        await gateway.call(body={"messages": [*PREFIX, RESULT, USER]}, headers=NAMED)
        after = (await gateway.client.get("/v1/sessions/run/story")).json()["saved_s"]
        assert before == after


async def test_a_turn_that_fails_leaves_the_prefill_for_another_try_and_then_lets_go(
    engine: Any, weft: Any, until: Any
) -> None:
    async def script(wire: Any, request: Any) -> None:
        if request.json.get("max_tokens") == 1:
            await reporting()(wire, request)
        else:
            await wire.plain({"error": {"message": "no"}}, "400 Bad Request")

    async with engine(script=script, asides={"/weft/kv": {}}) as stub, weft(stub) as gateway:
        handle = (await announce(gateway, ttl_s=0.5)).json()["id"]
        await done(gateway, handle)
        turn = await gateway.client.post(
            f"/v1/hints/prefill/{handle}/extend",
            json={"model": "tiny", "messages": [*PREFIX, RESULT]},
            headers=NAMED,
        )
        assert turn.status_code == 400
        assert len(gateway.parts.prefills) == 1
        await until(lambda: [sent["action"] for sent in kv(stub)] == ["give_up"])
        assert len(gateway.parts.prefills) == 0


async def test_another_program_that_extends_leaves_nothing_held(
    engine: Any, weft: Any, until: Any
) -> None:
    async with engine(script=reporting(), asides={"/weft/kv": {}}) as stub, weft(stub) as gateway:
        handle = (await announce(gateway)).json()["id"]
        await done(gateway, handle)
        turn = await gateway.client.post(
            f"/v1/hints/prefill/{handle}/extend",
            json={"model": "tiny", "messages": [*PREFIX, RESULT]},
            headers={"x-session-id": "other"},
        )
        assert turn.status_code == 200
        await until(lambda: [sent["action"] for sent in kv(stub)] == ["give_up"])


async def test_without_a_key_the_prefill_is_of_the_program_that_its_messages_continue(
    engine: Any, weft: Any
) -> None:
    answer = "I shall look for the way from Lyon to Turin."
    call = {"id": "c", "type": "function", "function": {"name": "far", "arguments": "{}"}}
    said = {"role": "assistant", "content": answer, "tool_calls": [call]}

    async def script(wire: Any, request: Any) -> None:
        await wire.plain({"choices": [{"index": 0, "message": said}]})

    async with engine(script=script) as stub, weft(stub) as gateway:
        first = await gateway.call(body={"messages": [SYSTEM, USER]})
        program = first.headers["x-weft-program"]
        turn = {"model": "tiny", "messages": [SYSTEM, USER, said]}
        submitted = await gateway.client.post("/v1/hints/prefill", json=turn)
        assert submitted.json()["session_id"] == program
        handle = submitted.json()["id"]
        await done(gateway, handle)
        turn["messages"] = [*turn["messages"], RESULT]
        extended = await gateway.client.post(f"/v1/hints/prefill/{handle}/extend", json=turn)
        assert extended.headers["x-weft-program"] == program
        turn["messages"] = [*turn["messages"], said, RESULT]
        assert (await gateway.call(body=turn)).headers["x-weft-program"] == program


@pytest.mark.parametrize("wrong", [{"messages": [1]}, {"tools": "abc"}])
async def test_what_is_no_chat_is_not_announced(engine: Any, weft: Any, wrong: Any) -> None:
    async with engine(script=reporting()) as stub, weft(stub) as gateway:
        refused = await announce(gateway, **wrong)
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "prefill_invalid")


async def test_an_announcement_that_is_too_deep_is_refused_at_any_depth(
    engine: Any, weft: Any
) -> None:
    async with engine(script=reporting()) as stub, weft(stub) as gateway:
        codes = []
        for depth in range(230, 270):
            deep: Any = 1
            for _ in range(depth):
                deep = [deep]
            got = await announce(gateway, messages=[{"role": "user", "content": deep}])
            codes.append(got.json()["error"]["code"] if got.is_error else "")
        assert list(dict.fromkeys(codes)) == ["", "too_deeply_nested", "prefill_invalid"]
