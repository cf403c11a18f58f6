"""Placement of new programs by the prefixes of their prompts, over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
from support.redis_server import RedisServer
from weft_engine.wire import REPORT_HEADER, CallReport

KEYS = ("k", "one", "two")

pytestmark = [pytest.mark.system, pytest.mark.anyio]

REPLICAS = ("r0", "r1")


BLOCK_TOKENS = 16


@asynccontextmanager
async def caching(engine: Any, blocks: int = 0) -> AsyncIterator[Any]:
    """Run an engine with a prefix cache. A token has four bytes. blocks: reported capacity."""
    cached: set[int] = set()

    async def script(wire: Any, request: Any) -> None:
        if any(other.target == "/weft/policy" for other in stub.other):
            cached.clear()
            stub.other.clear()
        body = request.json
        text = body.get("cache_salt", "") + "".join(m["content"] for m in body["messages"])
        size = 4 * BLOCK_TOKENS
        hashes = [hash(text[:end]) for end in range(size, len(text) + 1, size)]
        known = len(list(takewhile(cached.__contains__, hashes)))
        cached.update(hashes)
        report = CallReport(
            request.headers["x-weft-call"], prompt_tokens=len(text) // 4,
            cached_tokens=known * BLOCK_TOKENS, finished=True,
        )  # fmt: skip
        await wire.plain({}, headers={REPORT_HEADER: report.to_json()})

    state = {"weft": {}, "engines": [{"cache_tokens": blocks * BLOCK_TOKENS}] if blocks else []}
    canned = {"/weft/state": state, "/weft/policy": {}}
    async with engine(script=script, canned=canned) as stub:
        yield stub


@pytest.fixture
async def replicas(engine: Any) -> AsyncIterator[list[Any]]:
    async with caching(engine) as one, caching(engine) as two:
        yield [one, two]


def document(name: str) -> str:
    return f"What is known of {name}, line by line. " * 1000


def about(name: str, *texts: str, **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": text} for text in texts]
    system = {"role": "system", "content": document(name)}
    return {"model": "tiny", "max_tokens": 4, "messages": [system, *messages], **more}


async def call(gateway: Any, session: str, body: dict[str, Any], key: str = "k") -> dict[str, Any]:
    """Make one call and return its receipt."""
    bearer = {"authorization": f"Bearer {key}"}
    answer = await gateway.call(body=body, headers={"x-session-id": session, **bearer})
    assert answer.status_code == 200
    request = answer.headers["x-request-id"]
    receipt = (await gateway.client.get(f"/v1/receipts/{request}", headers=bearer)).json()
    assert receipt["place"]["replica"] == answer.headers["x-weft-replica"]
    return receipt


async def test_programs_with_a_shared_document_use_one_replica_and_receipts_state_the_reason(
    replicas: list[Any], weft: Any
) -> None:
    async with weft(*replicas, balancer="locality") as gateway:
        places: dict[str, set[str]] = {"X": set(), "Y": set()}
        for number in range(4):
            for name in places:
                receipt = await call(gateway, f"{name}{number}", about(name, f"Question {number}?"))
                place = receipt["place"]
                places[name].add(place["replica"])
                assert place["reason"] == ("shared prefix" if number else "new home")
                if number:
                    scores = place["scores"]["shared_prefix"]
                    assert scores[place["replica"]] == max(scores.values()) > 0
                    assert receipt["actual"]["cached_tokens"] > 8000
        assert {name: len(found) for name, found in places.items()} == {"X": 1, "Y": 1}
        known = len(gateway.parts.registry.prefixes._last)
        assert known == 8
        receipt = await call(gateway, "X0", about("X", "Question 0?", "And then?"))
        assert receipt["place"]["reason"] == "home"
        assert set(receipt["place"]["scores"]) == {"home", "last_replica", "least_used"}
        assert len(gateway.parts.registry.prefixes._last) == known, (
            "the prefix of a follow-up turn was recorded"
        )


async def test_short_calls_and_the_first_long_one_stay_where_their_program_ran_last(
    replicas: list[Any], weft: Any
) -> None:
    async with weft(*replicas, balancer="locality") as gateway:
        for number in range(8):
            session, found = f"s{number}", []
            for turn in range(4):
                body = {"messages": [{"role": "user", "content": "Hi. " * (turn + 1)}]}
                found.append((await call(gateway, session, body))["place"])
            found.append((await call(gateway, session, about(session, "What?")))["place"])
            assert len({place["replica"] for place in found}) == 1
            assert [p["reason"] for p in found] == ["least_used", *["last replica"] * 4]


async def test_tenants_and_clients_with_different_salts_share_no_prefix(
    replicas: list[Any], weft: Any
) -> None:
    async with weft(*replicas, balancer="locality") as gateway:
        salted = about("X", "What?", cache_salt="mine")
        for session, body, key, reason in (
            ("a", about("X", "What?"), "one", "new home"),
            ("b", about("X", "Why?"), "two", "new home"),
            ("c", salted, "one", "new home"),
            ("d", about("X", "How?"), "one", "shared prefix"),
            ("e", salted, "one", "shared prefix"),
        ):
            receipt = await call(gateway, session, body, key)
            assert receipt["place"]["reason"] == reason, session


async def test_a_cache_reset_clears_the_prefixes(replicas: list[Any], weft: Any) -> None:
    async with weft(*replicas, balancer="locality") as gateway:
        await call(gateway, "a", about("X", "What?"))
        assert (await call(gateway, "b", about("X", "Why?")))["place"]["reason"] == "shared prefix"
        emptied = {"policy": "plas", "reset_cache": True}
        assert (await gateway.client.post("/weft/policy", json=emptied)).json()["applied"]
        receipt = await call(gateway, "c", about("X", "How?"))
        assert receipt["place"]["reason"] == "new home"
        assert receipt["actual"]["cached_tokens"] == 0


async def test_engines_report_the_capacity_of_their_prefix_caches(engine: Any, weft: Any) -> None:
    async with caching(engine, blocks=600) as small, weft(small, balancer="locality") as gateway:
        await call(gateway, "a", about("X", "What?"))
        await call(gateway, "b", about("Y", "What?"))
        cached = gateway.parts.registry.prefixes._held["r0"]
        assert 8500 < sum(cached.marks.values()) <= 600 * 16, (
            "the prefixes do not fill the 600 blocks"
        )


async def test_gateways_with_different_prefixes_agree_on_one_home(
    tmp_path: Path, engine: Any, weft: Any
) -> None:
    redis = RedisServer(tmp_path)
    settings = {"redis_url": redis.url, "redis_timeout_s": 20, "balancer": "locality"}
    try:
        async with (
            engine() as one,
            engine() as two,
            weft(one, two, **settings) as first,
            weft(one, two, **settings) as second,
        ):
            body = about("X", "What?") | {"model": "tiny"}
            for gateway, replica in ((first, "r0"), (second, "r1")):
                # The gateway records its prefix as if the calls had gone to `replica`.
                await gateway.call(body=body, headers={"x-session-id": f"before-{replica}"})
                sent = gateway.parts.registry.prefixes
                (prefix,) = sent._last
                for other in REPLICAS:
                    sent.forget(other)
                sent.sent(replica, prefix)
            for number in range(8):
                answers = await asyncio.gather(
                    *(
                        gateway.call(body=body, headers={"x-session-id": f"race-{number}"})
                        for gateway in (first, second) * 3
                    )
                )
                assert {answer.status_code for answer in answers} == {200}
                assert len({answer.headers["x-weft-replica"] for answer in answers}) == 1
            # A call refreshes the gateway's counts of calls in flight.
            for gateway in (first, second):
                await gateway.call(body=body, headers={"x-session-id": "last"})
    finally:
        redis.kill()
