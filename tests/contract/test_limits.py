"""Limits per tenant: in memory, and shared by the gateways on one real Redis."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from support.redis_server import RedisServer
from weft_gateway.model.limits import Quota, TenantRules
from weft_gateway.programs.limits import IN_FLIGHT, REQUESTS, TOKENS, MemoryLimiter
from weft_gateway.programs.redis_limits import RedisLimiter
from weft_gateway.programs.redis_link import RedisLink

pytestmark = pytest.mark.anyio

_prefixes = itertools.count()


async def eventually(ask: Callable[[], Awaitable[Quota]], fits: Callable[[Quota], Any]) -> Quota:
    """Ask until the answer fits: releases and corrections are written in the background."""
    async with asyncio.timeout(10):
        while True:
            quota = await ask()
            if fits(quota):
                return quota
            await asyncio.sleep(0.01)


async def drained(limiter: Any) -> None:
    """Until a limiter has written what it writes in the background."""
    writer = getattr(limiter, "_writer", None)
    if writer is not None:
        async with asyncio.timeout(10):
            await writer


async def closed(limiter: Any) -> None:
    """End a limiter, and its client if it has one."""
    await limiter.aclose()
    if isinstance(limiter, RedisLimiter):
        await limiter._link.aclose()


@pytest.fixture(params=["memory", "redis"])
def make_limiter(request: pytest.FixtureRequest) -> Callable[[], Any]:
    if request.param == "memory":
        return MemoryLimiter
    server: RedisServer = request.getfixturevalue("redis_server")
    prefix = f"limits{next(_prefixes)}"
    return lambda **more: RedisLimiter(RedisLink(server.url, prefix, 20.0), **more)


@pytest.fixture
def redis_limiters(redis_server: RedisServer) -> Callable[[], Any]:
    """A maker of limiters that share one store, as several gateways do."""
    prefix = f"limits{next(_prefixes)}"
    return lambda **more: RedisLimiter(RedisLink(redis_server.url, prefix, 20.0), **more)


async def test_requests_are_refused_beyond_the_limit_with_the_time_to_wait(
    make_limiter: Any,
) -> None:
    limiter, rules = make_limiter(), TenantRules(requests_per_minute=3)
    quotas = [await limiter.admit("a", rules, 10) for _ in range(4)]
    assert [quota.refused for quota in quotas] == ["", "", "", REQUESTS]
    assert 0 < quotas[-1].wait_s <= 20.0
    assert quotas[0].requests_left == pytest.approx(2.0, abs=0.5)
    await closed(limiter)


async def test_tokens_are_refused_beyond_the_limit_and_corrected(make_limiter: Any) -> None:
    limiter, rules = make_limiter(), TenantRules(tokens_per_minute=100)
    assert (await limiter.admit("a", rules, 60)).refused == ""
    assert (await limiter.admit("a", rules, 60)).refused == TOKENS
    limiter.correct("a", rules, -60)
    await eventually(lambda: limiter.admit("a", rules, 60), lambda quota: not quota.refused)
    limiter.correct("a", rules, 1000)
    quota = await eventually(lambda: limiter.admit("a", rules, 1), lambda quota: quota.refused)
    assert quota.tokens_left < 0
    assert quota.wait_s > 500
    await closed(limiter)


async def test_calls_in_flight_are_counted_until_they_are_released(make_limiter: Any) -> None:
    limiter, rules = make_limiter(), TenantRules(calls_in_flight=2)
    assert [(await limiter.admit("a", rules, 1)).refused for _ in range(3)] == ["", "", IN_FLIGHT]
    limiter.release("a", rules)
    assert (await limiter.admit("a", rules, 1)).refused == ""
    await closed(limiter)


async def test_a_refused_call_takes_nothing(make_limiter: Any) -> None:
    limiter = make_limiter()
    rules = TenantRules(requests_per_minute=10, tokens_per_minute=100, calls_in_flight=5)
    assert (await limiter.admit("a", rules, 90)).refused == ""
    for _ in range(20):
        assert (await limiter.admit("a", rules, 90)).refused == TOKENS
    quota = await limiter.admit("a", rules, 5)
    assert quota.refused == ""
    assert quota.requests_left == pytest.approx(8.0, abs=0.6)
    await closed(limiter)


async def test_a_refusal_tells_what_is_left_of_every_limit(make_limiter: Any) -> None:
    limiter = make_limiter()
    rules = TenantRules(requests_per_minute=600, tokens_per_minute=1000, calls_in_flight=1)
    assert (await limiter.admit("a", rules, 100)).refused == ""
    quota = await limiter.admit("a", rules, 100)
    assert quota.refused == IN_FLIGHT
    assert quota.requests_left == pytest.approx(599, abs=1)
    assert quota.tokens_left == pytest.approx(900, abs=20)
    limiter.release("a", rules)
    quota = await eventually(
        lambda: limiter.admit("a", rules, 950), lambda quota: quota.refused != IN_FLIGHT
    )
    assert quota.refused == TOKENS
    assert quota.requests_left == pytest.approx(599, abs=1)
    await closed(limiter)


async def test_refused_calls_do_not_keep_others_out(make_limiter: Any) -> None:
    """Many impatient callers: whenever a place is free, one of them gets it at once."""
    limiter, rules = make_limiter(), TenantRules(calls_in_flight=2)
    for _ in range(20):
        quotas = await asyncio.gather(*(limiter.admit("a", rules, 1) for _ in range(30)))
        assert sum(not quota.refused for quota in quotas) == 2
        for _ in range(2):
            limiter.release("a", rules)
        # Releases are written in the background; the admissions below wait for their places.
        await eventually(lambda: limiter.admit("a", rules, 1), lambda quota: not quota.refused)
        limiter.release("a", rules)
        await drained(limiter)
    assert limiter.in_flight("a") == 0
    await closed(limiter)


async def test_a_refused_tenant_leaves_nothing_behind(redis_limiters: Any) -> None:
    limiter = redis_limiters()
    rules = TenantRules(requests_per_minute=1, calls_in_flight=5)
    assert (await limiter.admit("a", rules, 1)).refused == ""
    limiter.release("a", rules)
    assert (await limiter.admit("a", rules, 1)).refused == REQUESTS
    await drained(limiter)
    assert not limiter._running
    assert not limiter._asking
    await closed(limiter)


async def test_calls_that_ended_while_redis_was_away_do_not_count(
    redis_server: RedisServer,
) -> None:
    prefix = f"limits{next(_prefixes)}"
    links = [RedisLink(redis_server.url, prefix, 20.0) for _ in range(2)]
    one, other = map(RedisLimiter, links)
    rules = TenantRules(calls_in_flight=2)
    assert (await one.admit("a", rules, 1)).refused == ""
    links[0].away = True
    one.release("a", rules)
    assert (await one.admit("a", rules, 1)).refused == ""
    links[0].away = False
    await one.refresh()
    await drained(one)
    assert (await other.admit("a", rules, 1)).refused == ""
    assert (await other.admit("a", rules, 1)).refused == IN_FLIGHT
    one.release("a", rules)
    await drained(one)
    assert (await other.admit("a", rules, 1)).refused == ""
    await closed(one)
    await closed(other)


async def test_tenants_do_not_share_limits(make_limiter: Any) -> None:
    limiter, rules = make_limiter(), TenantRules(requests_per_minute=1)
    assert (await limiter.admit("a", rules, 1)).refused == ""
    assert (await limiter.admit("b", rules, 1)).refused == ""
    assert (await limiter.admit("a", rules, 1)).refused == REQUESTS
    await closed(limiter)


async def test_calls_at_the_same_moment_do_not_exceed_a_limit(make_limiter: Any) -> None:
    limiter = make_limiter()
    rules = TenantRules(requests_per_minute=20, calls_in_flight=7)
    quotas = await asyncio.gather(*(limiter.admit("a", rules, 1) for _ in range(50)))
    assert sum(not quota.refused for quota in quotas) == 7
    assert limiter.in_flight("a") == 7
    await closed(limiter)


async def test_gateways_on_one_store_share_the_limits(redis_limiters: Any) -> None:
    one, other = redis_limiters(), redis_limiters()
    rules = TenantRules(requests_per_minute=4, calls_in_flight=3)
    assert (await one.admit("a", rules, 1)).refused == ""
    assert (await one.admit("a", rules, 1)).refused == ""
    assert (await other.admit("a", rules, 1)).refused == ""
    assert (await other.admit("a", rules, 1)).refused == IN_FLIGHT
    one.release("a", rules)
    await eventually(lambda: other.admit("a", rules, 1), lambda quota: quota.refused != IN_FLIGHT)
    one.release("a", rules)
    quota = await eventually(
        lambda: other.admit("a", rules, 1), lambda quota: quota.refused != IN_FLIGHT
    )
    assert quota.refused == REQUESTS
    await closed(one)
    await closed(other)


async def test_calls_of_a_gateway_that_died_count_only_for_its_lease(redis_limiters: Any) -> None:
    rules = TenantRules(calls_in_flight=1)
    dead, alive = redis_limiters(lease_s=0.3), redis_limiters(lease_s=0.3)
    assert (await dead.admit("a", rules, 1)).refused == ""
    await eventually(lambda: alive.admit("a", rules, 1), lambda quota: not quota.refused)
    await closed(dead)
    await closed(alive)


async def test_each_gateway_applies_the_limits_alone_while_redis_is_away(
    redis_server: RedisServer,
) -> None:
    gone = RedisLimiter(RedisLink("redis://127.0.0.1:1", "x", 0.2))
    known = RedisLimiter(RedisLink("redis://127.0.0.1:1", "x", 0.2))
    known._link.away = True
    rules = TenantRules(requests_per_minute=1)
    for limiter in (gone, known):
        assert (await limiter.admit("a", rules, 1)).refused == ""
        assert (await limiter.admit("a", rules, 1)).refused == REQUESTS
        limiter.release("a", rules)
        await closed(limiter)
