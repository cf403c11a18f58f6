"""Hints through two gateways on one Redis: a hint to one gateway applies to calls through the
other.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.redis_server import RedisServer
from support.waiting import DEADLINE_S
from weft_gateway.calls import prefills

KEYS = ("own", "sk-other")

pytestmark = [pytest.mark.system, pytest.mark.anyio]

NAMED = {"x-session-id": "run"}
MESSAGES = [
    {"role": "system", "content": "You are an agent. " * 40},
    {"role": "user", "content": "What is the weather in Lyon? " * 10},
    {"role": "assistant", "content": "I will look. " * 10},
    {"role": "tool", "tool_call_id": "c", "content": "Sunny. " * 60},
]


def tags_of(stub: Any) -> Any:
    return stub.requests[-1].json["vllm_xargs"]["weft_tags"][1::2]


async def test_tags_set_through_one_gateway_apply_to_calls_through_another(
    redis: RedisServer, engine: Any, weft: Any
) -> None:
    hint = {"session_id": "run", "tags": [{"messages": [1, 3], "tag": "SYSTEM_PROMPT"}]}
    async with (
        engine() as stub,
        weft(stub, redis_url=redis.url) as first,
        weft(stub, redis_url=redis.url) as second,
    ):
        # The second gateway has seen the program before.
        await second.call(body={"messages": MESSAGES}, headers=NAMED)
        assert tags_of(stub) == [4, 3, 2]
        await first.client.post("/v1/hints/tags", json=hint)
        for gateway in (second, first):
            await gateway.call(body={"messages": MESSAGES}, headers=NAMED)
            assert tags_of(stub) == [4, 2]
        other = {"authorization": "Bearer sk-other", **NAMED}
        await second.call(body={"messages": MESSAGES}, headers=other)
        assert tags_of(stub) == [4, 3, 2]
        await second.client.post("/v1/hints/tags", json=hint | {"tags": []})
        await first.call(body={"messages": MESSAGES}, headers=NAMED)
        assert tags_of(stub) == [4, 3, 2]


async def test_tags_set_during_an_outage_apply_during_and_after_it(
    redis: RedisServer, engine: Any, weft: Any, until: Any
) -> None:
    hint = {"session_id": "run", "tags": [{"messages": [1, 3], "tag": "SYSTEM_PROMPT"}]}
    async with engine() as stub, weft(stub, redis_url=redis.url) as gateway:
        redis.kill()
        accepted = await gateway.client.post("/v1/hints/tags", json=hint)
        assert accepted.status_code == 200
        got = await gateway.call(body={"messages": MESSAGES}, headers=NAMED)
        assert got.status_code == 200
        assert tags_of(stub) == [4, 2]
        redis.start()
        await until(lambda: not gateway.parts.table.local)
        await gateway.call(body={"messages": MESSAGES}, headers=NAMED)
        assert tags_of(stub) == [4, 2]


async def test_each_gateway_sends_the_engine_only_a_priority_and_its_duration(
    redis: RedisServer, engine: Any, weft: Any
) -> None:
    async with (
        engine(canned={"/weft/kv": {}}) as stub,
        weft(stub, redis_url=redis.url) as first,
        weft(stub, redis_url=redis.url) as second,
    ):
        await first.call(body={"messages": MESSAGES}, headers=NAMED)
        for gateway, priority, ttl_s in ((first, 1, 2.0), (second, 2, 3.0)):
            hint = {"session_id": "run", "priority": priority, "ttl_s": ttl_s}
            answer = (await gateway.client.post("/v1/hints/priority", json=hint)).json()
            assert answer["fates"]["priority"] == {"r0": "applied"}
        assert [(r.json["priority"], r.json["ttl_s"]) for r in stub.other] == [(1, 2.0), (2, 3.0)]
        # The table does not store priorities.
        assert (await first.client.get("/v1/sessions/run")).json()["told"] == {}


PREFIX = MESSAGES[:3]
TURN = {"model": "tiny", "messages": MESSAGES}


def report_script(wire: Any, request: Any) -> Any:
    """Answer with a report. A turn finds all prefilled tokens in the cache."""
    body = request.json
    is_prefill = body.get("max_tokens") == 1
    report = {
        "call": body["vllm_xargs"]["weft_call"], "service_s": 0.5, "prompt_tokens": 100,
        "cached_tokens": 0 if is_prefill else 96, "finished": True,
    }  # fmt: skip
    return wire.plain({"id": "x", "choices": []}, headers={"x-weft-report": json.dumps(report)})


def kv(*stubs: Any) -> list[str]:
    sent = [request.json for stub in stubs for request in stub.other]
    return [message["action"] for message in sent]


async def submit(gateway: Any, done: bool = True, **body: Any) -> Any:
    """Submit a prefill and return its status, by default after its end."""
    body = {"model": "tiny", "messages": PREFIX, **body}
    submitted = await gateway.client.post("/v1/hints/prefill", json=body, headers=NAMED)
    assert submitted.status_code == 201
    shown = submitted.json()
    async with asyncio.timeout(DEADLINE_S):
        while done and shown["status"] == "running":
            await asyncio.sleep(0.01)
            shown = (await gateway.client.get(f"/v1/hints/prefill/{shown['id']}")).json()
    return shown


@pytest.mark.parametrize("how", ["extended", "an ordinary call"])
async def test_a_turn_claims_a_prefill_of_another_gateway(
    how: str, redis: RedisServer, engine: Any, weft: Any
) -> None:
    async with (
        engine(script=report_script, canned={"/weft/kv": {}}) as one,
        engine(script=report_script, canned={"/weft/kv": {}}) as two,
        weft(one, two, redis_url=redis.url) as first,
        weft(one, two, redis_url=redis.url) as second,
    ):
        shown = await submit(first)
        path = f"/v1/hints/prefill/{shown['id']}"
        # The first gateway writes the end of a prefill to Redis after it reports it.
        async with asyncio.timeout(DEADLINE_S):
            while (seen := (await second.client.get(path)).json())["status"] == "running":  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert seen == shown
        assert (seen["status"], seen["prompt_tokens"]) == ("done", 100)
        other = {"authorization": "Bearer sk-other"}
        for method, rest in (("GET", ""), ("DELETE", ""), ("POST", "/extend")):
            body = {"json": TURN} if rest else {}
            refused = await second.client.request(method, path + rest, headers=other, **body)
            assert refused.status_code == 404
            assert refused.json()["error"]["code"] == "prefill_not_found"
        asked = {**NAMED, "x-request-id": "turn"}
        if how == "extended":
            wrong = {**TURN, "messages": MESSAGES[1:]}
            got = await second.client.post(f"{path}/extend", json=wrong, headers=NAMED)
            assert got.status_code == 409
            got = await second.client.post(f"{path}/extend", json=TURN, headers=asked)
            assert got.headers["x-weft-replica"] == shown["replica"]
        else:
            got = await second.client.post("/v1/chat/completions", json=TURN, headers=asked)
        assert (got.status_code, got.headers["x-weft-program"]) == (200, "run")
        receipt = (await second.client.get("/v1/receipts/turn")).json()
        assert receipt["saved_s"]["prefill"] > 0
        # The handle is gone for both gateways, and no blocks are left to release.
        # The gateway that served the turn removes the handle from Redis after it has answered.
        async with asyncio.timeout(DEADLINE_S):
            for gateway in (first, second):
                while (await gateway.client.get(path)).status_code != 404:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                assert (await gateway.client.get("/v1/sessions/run")).json()["told"] == {}
        assert kv(one, two) == []


@contextlib.asynccontextmanager
async def running_prefill(redis: RedisServer, engine: Any, weft: Any) -> AsyncIterator[Any]:
    """Run two gateways in front of one engine that computes no prefill until `go` is set.

    The result is the engine, both gateways, the handle of a prefill that runs through the first
    gateway, and `go`.
    """
    go = asyncio.Event()

    async def script(wire: Any, request: Any) -> None:
        if request.json.get("max_tokens") == 1:
            await go.wait()
        await report_script(wire, request)

    async with (
        engine(script=script, canned={"/weft/kv": {}}) as stub,
        weft(stub, redis_url=redis.url) as first,
        weft(stub, redis_url=redis.url) as second,
    ):
        yield stub, first, second, (await submit(first, done=False))["id"], go


async def test_a_prefill_deleted_through_another_gateway_is_released_after_its_end(
    redis: RedisServer, engine: Any, weft: Any, until: Any
) -> None:
    async with running_prefill(redis, engine, weft) as (stub, first, second, handle, go):
        await until(lambda: stub.requests)
        deleted = await second.client.delete(f"/v1/hints/prefill/{handle}")
        assert deleted.json()["deleted"] is True
        assert kv(stub) == ["give_up"]
        assert (await first.client.get(f"/v1/hints/prefill/{handle}")).status_code == 404
        go.set()
        await until(lambda: kv(stub) == ["give_up", "give_up"])
        await until(lambda: first.in_flight() == 0)


@pytest.mark.parametrize("ends", ["while it waits", "later"])
async def test_a_turn_waits_a_limited_time_for_a_prefill_of_another_gateway(
    ends: str, redis: RedisServer, engine: Any, weft: Any, until: Any, monkeypatch: Any
) -> None:
    polls = 0
    async with running_prefill(redis, engine, weft) as (stub, first, second, handle, go):
        find = second.parts.prefills.handles.find

        async def count_polls(*about: Any) -> Any:
            # The turn first finds its handle, then polls the state of the prefill.
            nonlocal polls
            polls += 1
            if polls == 2:
                # The turn is not sent while it waits.
                assert [turn.json["messages"] for turn in stub.requests] == [PREFIX]
                if ends == "while it waits":
                    go.set()
                    await until(lambda: first.in_flight() == 0)
            return await find(*about)

        monkeypatch.setattr(second.parts.prefills.handles, "find", count_polls)
        await until(lambda: stub.requests)
        path = f"/v1/hints/prefill/{handle}/extend"
        asked = {**NAMED, "x-request-id": "turn"}
        got = await second.client.post(path, json=TURN, headers=asked)
        assert got.status_code == 200
        # One poll suffices if the prefill is done by then. Otherwise the turn polls until its time
        # is over.
        most = round(prefills._WAIT_S / prefills._LOOK_EVERY_S)
        assert polls == 1 + (1 if ends == "while it waits" else most)
        prefill, turn = stub.requests
        assert (prefill.json["messages"], prefill.json["max_tokens"]) == (PREFIX, 1)
        assert (turn.json["messages"], "max_tokens" in turn.json) == (MESSAGES, False)
        saved = (await second.client.get("/v1/receipts/turn")).json()["saved_s"]
        assert ("prefill" in saved and saved["prefill"] > 0) is (ends == "while it waits")
        go.set()
        await until(lambda: first.in_flight() == 0)
        # A call refreshes the gateway's counts of calls in flight.
        await second.call(headers=NAMED)


async def test_an_unused_prefill_is_released_by_its_gateway(
    redis: RedisServer, engine: Any, weft: Any, until: Any
) -> None:
    async with (
        engine(script=report_script, canned={"/weft/kv": {}}) as stub,
        weft(stub, redis_url=redis.url) as first,
        weft(stub, redis_url=redis.url) as second,
    ):
        handle = (await submit(first, done=False, ttl_s=0.3))["id"]
        await until(lambda: kv(stub) == ["give_up"])
        for gateway in (first, second):
            assert (await gateway.client.get(f"/v1/hints/prefill/{handle}")).status_code == 404


async def test_handles_work_on_their_own_gateway_during_an_outage(
    redis: RedisServer, engine: Any, weft: Any, until: Any
) -> None:
    async with (
        engine(script=report_script, canned={"/weft/kv": {}}) as stub,
        weft(stub, redis_url=redis.url) as first,
        weft(stub, redis_url=redis.url) as second,
    ):
        known = await submit(first)
        redis.kill()
        shown = (await first.client.get(f"/v1/hints/prefill/{known['id']}")).json()
        assert shown["status"] == "done"
        later = await submit(first)
        for gateway, handle in ((first, later), (second, known)):
            # To the second gateway this turn is an ordinary call.
            path = f"/v1/hints/prefill/{handle['id']}/extend"
            got = await gateway.client.post(path, json=TURN, headers=NAMED)
            assert (got.status_code, got.headers["x-weft-program"]) == (200, "run")
        redis.start()
        for gateway in (first, second):
            await until(lambda gateway=gateway: not gateway.parts.table.local)
