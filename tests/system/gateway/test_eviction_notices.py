"""Programs that end by their silence: who tells the engines, and how often."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.redis_server import RedisServer
from weft_gateway.model import ProgramKey
from weft_gateway.programs.identity import tenant_of

pytestmark = [pytest.mark.system, pytest.mark.anyio]

# Every call is a long one, which pins its program.
PINNED: dict[str, Any] = {"balancer": "locality", "locality_threshold_tokens": 0}
IDLE: dict[str, Any] = {**PINNED, "program_idle_s": 0.5}
ASIDES: dict[str, Any] = {"/weft/kv": {}}


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path)
    yield server
    server.kill()


def told(*stubs: Any) -> Counter[tuple[str, str]]:
    """What engines were told, and how often."""
    sent = [request.json for stub in stubs for request in stub.other]
    return Counter((message["action"], message["program"]) for message in sent)


async def calls(gateway: Any, names: list[str]) -> None:
    for name in names:
        assert (await gateway.call(headers={"x-session-id": name})).status_code == 200


def once(*stubs: Any) -> Counter[tuple[str, str]]:
    """What is to be told: that each program that these have served has ended."""
    served = [request.json["vllm_xargs"] for stub in stubs for request in stub.requests]
    return Counter({("forget", xargs["weft_program"]): 1 for xargs in served})


async def test_the_engine_that_a_program_was_pinned_to_is_told_that_it_has_ended(
    engine: Any, weft: Any, until: Any
) -> None:
    async with (
        engine(asides=ASIDES) as one,
        engine(asides=ASIDES) as two,
        weft(one, two, **IDLE) as gateway,
    ):
        await calls(gateway, [f"run{number}" for number in range(20)])
        await until(lambda: told(one, two) == once(one, two))
        assert told(one) == once(one)
        # Nothing is left to be told of.
        await calls(gateway, ["other"])
        await until(lambda: told(one, two) == once(one, two))


async def test_one_of_several_gateways_on_one_redis_tells_of_each_program(
    redis: RedisServer, engine: Any, weft: Any, until: Any
) -> None:
    # However busy the machine is, Redis is there.
    settings = {**IDLE, "redis_url": redis.url, "redis_timeout_s": 20.0}
    async with (
        engine(asides=ASIDES) as one,
        engine(asides=ASIDES) as two,
        weft(one, two, **settings) as first,
        weft(one, two, **settings) as second,
    ):
        for number in range(60):
            await calls((first, second)[number % 2], [f"run{number}"])
        await until(lambda: len(told(one, two)) == 60)
        # A program more, which ends later than all of these: nobody has told twice until then.
        await calls(first, ["last"])
        await until(lambda: len(told(one, two)) == 61)
        assert told(one, two) == once(one, two)


async def test_while_redis_is_away_nobody_tells_and_afterwards_one_does(
    redis: RedisServer, engine: Any, weft: Any, until: Any
) -> None:
    settings = {**IDLE, "redis_url": redis.url}
    async with (
        engine(asides=ASIDES) as stub,
        weft(stub, **settings) as first,
        weft(stub, **settings) as second,
    ):
        # The view of each gateway has it, and lets go of it.
        await calls(first, ["run"])
        await calls(second, ["run"])
        redis.pause()
        for gateway in (first, second):
            await until(lambda gateway=gateway: gateway.parts.table.local)
            key = ProgramKey(tenant_of(""), "run")
            await until(lambda gateway=gateway, key=key: not gateway.parts.table.peek(key))
        assert told(stub) == Counter()
        redis.resume()
        await until(lambda: told(stub) == once(stub))


async def test_an_engine_that_does_not_answer_keeps_nobody_from_being_told(
    engine: Any, weft: Any, until: Any
) -> None:
    async with engine(asides=ASIDES) as one, engine() as two, weft(one, two, **IDLE) as gateway:
        await calls(gateway, [f"run{number}" for number in range(20)])
        await until(lambda: told(one) == once(one) and told(two) == once(two))
