"""Contract of the limiters per tenant: in memory, and shared by gateways on one Redis."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from support.redis_server import RedisServer
from support.waiting import DEADLINE_S
from weft_gateway.model.limits import Quota, TenantRules
from weft_gateway.programs.limits import IN_FLIGHT, REQUESTS, TOKENS, Limiter
from weft_gateway.programs.redis_limits import RedisLimiter
from weft_gateway.programs.redis_link import RedisLink

pytestmark = pytest.mark.anyio

_prefixes = itertools.count()


async def eventually(ask: Callable[[], Awaitable[Quota]], fits: Callable[[Quota], Any]) -> Quota:
    """Ask until the answer fits. The limiters write releases and corrections in the background."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            quota = await ask()
            if fits(quota):
                return quota
            await asyncio.sleep(0.01)


async def drain(limiter: Any) -> None:
    """Wait for the limiter's background writes."""
    writer = getattr(limiter, "_writer", None)
    if writer is not None:
        async with asyncio.timeout(DEADLINE_S):
            await writer


async def close(limiter: Any) -> None:
    """Close a limiter and its Redis link."""
    await limiter.aclose()
    if isinstance(limiter, RedisLimiter):
        await limiter._link.aclose()


@pytest.fixture(params=["memory", "redis"])
def make_limiter(request: pytest.FixtureRequest) -> Callable[[], Any]:
    if request.param == "memory":
        return Limiter
    server: RedisServer = request.getfixturevalue("redis_server")
    prefix = f"limits{next(_prefixes)}"
    return lambda **more: RedisLimiter(RedisLink(server.url, prefix, 20.0), **more)


@pytest.fixture
def redis_limiters(redis_server: RedisServer) -> Callable[[], Any]:
    """Return a factory of limiters that share one store, as several gateways do."""
    prefix = f"limits{next(_prefixes)}"
    return lambda **more: RedisLimiter(RedisLink(redis_server.url, prefix, 20.0), **more)


async def test_requests_beyond_the_limit_are_refused_with_a_wait_time(
    make_limiter: Any,
) -> None:
    limiter, rules = make_limiter(), TenantRules(requests_per_minute=3)
    quotas = [await limiter.admit("a", rules, 10) for _ in range(4)]
    assert [quota.refused for quota in quotas] == ["", "", "", REQUESTS]
    assert 0 < quotas[-1].wait_s <= 20.0
    assert quotas[0].requests_left == pytest.approx(2.0)
    await close(limiter)


async def test_tokens_beyond_the_limit_are_refused_and_estimates_corrected(
    make_limiter: Any,
) -> None:
    limiter, rules = make_limiter(), TenantRules(tokens_per_minute=100)
    assert (await limiter.admit("a", rules, 60)).refused == ""
    assert (await limiter.admit("a", rules, 60)).refused == TOKENS
    limiter.correct("a", rules, -60)
    await eventually(lambda: limiter.admit("a", rules, 60), lambda quota: not quota.refused)
    limiter.correct("a", rules, 1000)
    quota = await eventually(lambda: limiter.admit("a", rules, 1), lambda quota: quota.refused)
    assert quota.tokens_left < 0
    assert quota.wait_s > 500
    await close(limiter)


async def test_calls_count_as_in_flight_until_they_are_released(make_limiter: Any) -> None:
    limiter, rules = make_limiter(), TenantRules(calls_in_flight=2)
    assert [(await limiter.admit("a", rules, 1)).refused for _ in range(3)] == ["", "", IN_FLIGHT]
    limiter.release("a", rules)
    assert (await limiter.admit("a", rules, 1)).refused == ""
    await close(limiter)


async def test_a_refused_call_consumes_no_quota(make_limiter: Any) -> None:
    limiter = make_limiter()
    rules = TenantRules(requests_per_minute=10, tokens_per_minute=100, calls_in_flight=5)
    assert (await limiter.admit("a", rules, 90)).refused == ""
    for _ in range(20):
        assert (await limiter.admit("a", rules, 90)).refused == TOKENS
    quota = await limiter.admit("a", rules, 5)
    assert quota.refused == ""
    # More may have become available meanwhile.
    assert quota.requests_left >= 8.0 - 1e-6
    await close(limiter)


async def test_a_refusal_reports_the_remainder_of_every_limit(make_limiter: Any) -> None:
    limiter = make_limiter()
    rules = TenantRules(requests_per_minute=600, tokens_per_minute=1000, calls_in_flight=1)
    assert (await limiter.admit("a", rules, 600)).refused == ""
    quota = await limiter.admit("a", rules, 100)
    assert quota.refused == IN_FLIGHT
    assert quota.requests_left == pytest.approx(599, abs=1)
    # Half of what was used may have become available meanwhile.
    assert 400 <= quota.tokens_left < 700
    limiter.release("a", rules)
    quota = await eventually(
        lambda: limiter.admit("a", rules, 950), lambda quota: quota.refused != IN_FLIGHT
    )
    assert quota.refused == TOKENS
    assert quota.requests_left == pytest.approx(599, abs=1)
    await close(limiter)


async def test_refused_calls_do_not_block_others(make_limiter: Any) -> None:
    """Under contention, a free place always goes to one caller at once."""
    limiter, rules = make_limiter(), TenantRules(calls_in_flight=2)
    for _ in range(20):
        quotas = await asyncio.gather(*(limiter.admit("a", rules, 1) for _ in range(30)))
        assert sum(not quota.refused for quota in quotas) == 2
        for _ in range(2):
            limiter.release("a", rules)
        # Releases are written in the background. The admissions below wait for their places.
        await eventually(lambda: limiter.admit("a", rules, 1), lambda quota: not quota.refused)
        limiter.release("a", rules)
        await drain(limiter)
    assert limiter.in_flight("a") == 0
    await close(limiter)


async def test_a_refusal_leaves_no_background_work(redis_limiters: Any) -> None:
    limiter = redis_limiters()
    rules = TenantRules(requests_per_minute=1, calls_in_flight=5)
    assert (await limiter.admit("a", rules, 1)).refused == ""
    limiter.release("a", rules)
    assert (await limiter.admit("a", rules, 1)).refused == REQUESTS
    await drain(limiter)
    assert not limiter._running
    assert not limiter._asking
    await close(limiter)


async def test_calls_that_ended_during_an_outage_do_not_count(
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
    await drain(one)
    assert (await other.admit("a", rules, 1)).refused == ""
    assert (await other.admit("a", rules, 1)).refused == IN_FLIGHT
    one.release("a", rules)
    await drain(one)
    assert (await other.admit("a", rules, 1)).refused == ""
    await close(one)
    await close(other)


async def test_tenants_do_not_share_limits(make_limiter: Any) -> None:
    limiter, rules = make_limiter(), TenantRules(requests_per_minute=1)
    assert (await limiter.admit("a", rules, 1)).refused == ""
    assert (await limiter.admit("b", rules, 1)).refused == ""
    assert (await limiter.admit("a", rules, 1)).refused == REQUESTS
    await close(limiter)


async def test_concurrent_calls_do_not_exceed_a_limit(make_limiter: Any) -> None:
    limiter = make_limiter()
    rules = TenantRules(requests_per_minute=20, calls_in_flight=7)
    quotas = await asyncio.gather(*(limiter.admit("a", rules, 1) for _ in range(50)))
    assert sum(not quota.refused for quota in quotas) == 7
    assert limiter.in_flight("a") == 7
    await close(limiter)


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
    await close(one)
    await close(other)


async def test_calls_of_a_gateway_that_died_count_only_for_its_lease(redis_limiters: Any) -> None:
    rules = TenantRules(calls_in_flight=1)
    dead, alive = redis_limiters(lease_s=0.3), redis_limiters(lease_s=0.3)
    assert (await dead.admit("a", rules, 1)).refused == ""
    await eventually(lambda: alive.admit("a", rules, 1), lambda quota: not quota.refused)
    await close(dead)
    await close(alive)


async def test_each_gateway_applies_the_limits_locally_during_an_outage(
    redis_server: RedisServer,
) -> None:
    unreachable = RedisLimiter(RedisLink("redis://127.0.0.1:1", "x", 0.2))
    known_unreachable = RedisLimiter(RedisLink("redis://127.0.0.1:1", "x", 0.2))
    known_unreachable._link.away = True
    rules = TenantRules(requests_per_minute=1)
    for limiter in (unreachable, known_unreachable):
        assert (await limiter.admit("a", rules, 1)).refused == ""
        assert (await limiter.admit("a", rules, 1)).refused == REQUESTS
        limiter.release("a", rules)
        await close(limiter)
