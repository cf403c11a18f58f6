"""Turns on the event loop, fair over tenants."""

from __future__ import annotations

import asyncio

import pytest
from support.waiting import DEADLINE_S
from weft_gateway.calls.turns import Turns

pytestmark = pytest.mark.anyio


async def test_free_turn_is_taken_without_waiting() -> None:
    turns = Turns()
    took = turns.take("a", 1)
    with pytest.raises(StopIteration):
        took.send(None)


async def test_each_loop_iteration_runs_one_piece() -> None:
    turns = Turns()
    loop = asyncio.get_running_loop()
    rounds = 0
    seen: list[int] = []

    def tick() -> None:
        nonlocal rounds
        rounds += 1
        loop.call_soon(tick)

    async def piece() -> None:
        await turns.take("a", 1)
        seen.append(rounds)

    loop.call_soon(tick)
    await asyncio.gather(*(piece() for _ in range(5)))
    assert len(set(seen)) == 5


async def test_tenant_with_less_work_goes_first() -> None:
    turns = Turns()
    order: list[str] = []

    async def piece(tenant: str, cost: float) -> None:
        await turns.take(tenant, cost)
        order.append(tenant)

    many = [asyncio.create_task(piece("many", 10)) for _ in range(20)]
    await asyncio.sleep(0)
    one = asyncio.create_task(piece("one", 1))
    await asyncio.gather(one, *many)
    # The first turn was already taken when it arrived.
    assert "one" in order[:3]


async def test_small_pieces_cost_a_tenant_less_than_large_ones() -> None:
    turns = Turns()
    order: list[str] = []

    async def piece(tenant: str, cost: float) -> None:
        await turns.take(tenant, cost)
        order.append(tenant)

    await asyncio.gather(
        *(piece(tenant, cost) for _ in range(8) for tenant, cost in (("large", 4), ("small", 1)))
    )
    assert order[:10].count("small") >= 7


async def test_cancelled_waiter_takes_no_turn() -> None:
    turns = Turns()
    first, gone, after = (asyncio.create_task(turns.take("a", 1)) for _ in range(3))
    await asyncio.sleep(0)
    gone.cancel()
    await first
    await asyncio.wait_for(after, DEADLINE_S)
    with pytest.raises(asyncio.CancelledError):
        await gone
    # Every turn is free again.
    await asyncio.wait_for(turns.take("a", 1), DEADLINE_S)
