"""Eviction notices: engines receive one notice for each program that expires."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from support.redis_server import RedisServer
from weft_gateway.model import ProgramKey
from weft_gateway.programs.identity import tenant_of

pytestmark = [pytest.mark.system, pytest.mark.anyio]

# With this threshold every call counts as long and pins its program.
PINNED: dict[str, Any] = {"balancer": "locality", "locality_threshold_tokens": 0}
IDLE: dict[str, Any] = {**PINNED, "program_idle_s": 0.5}
CANNED: dict[str, Any] = {"/weft/kv": {}}


def notices(*stubs: Any) -> Counter[tuple[str, str]]:
    """Return the commands that engines received, with their number."""
    sent = [request.json for stub in stubs for request in stub.other]
    return Counter((message["action"], message["program"]) for message in sent)


async def make_calls(gateway: Any, names: list[str]) -> None:
    for name in names:
        assert (await gateway.call(headers={"x-session-id": name})).status_code == 200


def expected(*stubs: Any) -> Counter[tuple[str, str]]:
    """Return the expected commands: one `forget` for each program that these engines served."""
    served = [request.json["vllm_xargs"] for stub in stubs for request in stub.requests]
    return Counter({("forget", xargs["weft_program"]): 1 for xargs in served})


async def test_the_pinned_engine_receives_a_notice_when_the_program_expires(
    engine: Any, weft: Any, until: Any
) -> None:
    async with (
        engine(canned=CANNED) as one,
        engine(canned=CANNED) as two,
        weft(one, two, **IDLE) as gateway,
    ):
        await make_calls(gateway, [f"run{number}" for number in range(20)])
        await until(lambda: notices(one, two) == expected(one, two))
        assert notices(one) == expected(one)
        # A later program produces no second notice for the earlier ones.
        await make_calls(gateway, ["other"])
        await until(lambda: notices(one, two) == expected(one, two))


@pytest.mark.parametrize("deleted", [True, False], ids=["deleted", "expired"])
async def test_the_engine_of_short_calls_receives_a_notice_when_the_program_ends(
    engine: Any, weft: Any, until: Any, deleted: bool
) -> None:
    settings: dict[str, Any] = {"balancer": "locality"} | (
        {} if deleted else {"program_idle_s": 0.5}
    )
    async with (
        engine(canned=CANNED) as one,
        engine(canned=CANNED) as two,
        weft(one, two, **settings) as gateway,
    ):
        names = [f"run{number}" for number in range(20)]
        await make_calls(gateway, names)
        for name in names if deleted else []:
            await gateway.client.delete(f"/v1/sessions/{name}")
        for stub in (one, two):
            await until(lambda stub=stub: notices(stub) == expected(stub))


async def test_one_of_several_gateways_on_one_redis_sends_each_notice(
    redis: RedisServer, engine: Any, weft: Any, until: Any
) -> None:
    # The long timeout keeps a busy machine from looking like an outage.
    settings = {**IDLE, "redis_url": redis.url, "redis_timeout_s": 20.0}
    async with (
        engine(canned=CANNED) as one,
        engine(canned=CANNED) as two,
        weft(one, two, **settings) as first,
        weft(one, two, **settings) as second,
    ):
        for number in range(60):
            await make_calls((first, second)[number % 2], [f"run{number}"])
        await until(lambda: len(notices(one, two)) == 60)
        # A later program shows that no notice was sent twice before it.
        await make_calls(first, ["last"])
        await until(lambda: len(notices(one, two)) == 61)
        assert notices(one, two) == expected(one, two)


async def test_notices_are_sent_once_after_an_outage_of_redis(
    redis: RedisServer, engine: Any, weft: Any, until: Any
) -> None:
    settings = {**IDLE, "redis_url": redis.url, "redis_timeout_s": 1}
    async with (
        engine(canned=CANNED) as stub,
        weft(stub, **settings) as first,
        weft(stub, **settings) as second,
    ):
        # The local view of each gateway contains the program, then removes it.
        await make_calls(first, ["run"])
        await make_calls(second, ["run"])
        redis.pause()
        for gateway in (first, second):
            await until(lambda gateway=gateway: gateway.parts.table.local)
            key = ProgramKey(tenant_of(""), "run")
            await until(lambda gateway=gateway, key=key: not gateway.parts.table.peek(key))
        assert notices(stub) == Counter()
        redis.resume()
        await until(lambda: notices(stub) == expected(stub))


async def test_a_failing_engine_does_not_block_the_notices_of_others(
    engine: Any, weft: Any, until: Any
) -> None:
    async with engine(canned=CANNED) as one, engine() as two, weft(one, two, **IDLE) as gateway:
        await make_calls(gateway, [f"run{number}" for number in range(20)])
        await until(lambda: notices(one) == expected(one) and notices(two) == expected(two))
