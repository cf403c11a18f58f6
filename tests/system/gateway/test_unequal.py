"""Placement by predicted costs on replicas of unequal speed, over real sockets."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.waiting import until
from weft_engine.wire import REPORT_HEADER, CallReport

pytestmark = [pytest.mark.system, pytest.mark.anyio]

FAST, SLOW = 1e-4, 4e-4


def state(token_s: float) -> dict[str, Any]:
    """The state of an engine with this time per prompt token."""
    costs = {
        "step_s": 0.001, "weights_s": 100 * token_s, "prefill_token_s": token_s,
        "decode_sequence_s": token_s, "context_token_s": 0.0, "samples": 99, "relative_error": 0.02,
    }  # fmt: skip
    limits = {"slots": 4, "step_tokens": 2048, "kv_blocks": 1000, "block_tokens": 16}
    return {"weft": {}, "engines": [{"costs": costs, **limits}]}


def answering(token_s: float, hold: asyncio.Event | None = None) -> dict[str, Any]:
    """Options of an engine that reports 1,000 prompt tokens and 50 of the answer."""

    async def script(wire: Any, request: Any) -> None:
        if hold is not None:
            await hold.wait()
        report = CallReport(
            request.headers["x-weft-call"], prompt_tokens=1000, output_tokens=50,
            service_s=1050 * token_s, finished=True,
        )  # fmt: skip
        await wire.plain({}, headers={REPORT_HEADER: report.to_json()})

    return {"script": script, "canned": {"/weft/state": state(token_s)}}


async def place(gateway: Any, answer: Any) -> dict[str, Any]:
    """The place of a call by its receipt."""
    receipt = await gateway.client.get(f"/v1/receipts/{answer.headers['x-request-id']}")
    found: dict[str, Any] = receipt.json()["place"]
    return found


async def test_costs_of_engines_place_calls_and_are_in_receipts(engine, weft):
    hold = asyncio.Event()
    engines = engine(**answering(SLOW)), engine(**answering(FAST, hold))
    async with engines[0] as slow, engines[1] as fast:
        hold.set()
        async with weft(slow, fast, balancer="soonest") as gateway:
            # The first call teaches the length of answers.
            await gateway.call()
            found = await place(gateway, answer := await gateway.call())
            assert answer.headers["x-weft-replica"] == found["replica"] == "r1"
            assert found["reason"] == "earliest finish"
            costs = found["costs"]
            # Prefill of the estimated prompt, and 50 tokens at step and weights each.
            assert costs["r1"]["cost_s"] == pytest.approx(50 * (0.001 + 100 * FAST), rel=0.1)
            assert costs["r0"]["cost_s"] == pytest.approx(50 * (0.001 + 100 * SLOW), rel=0.1)
            assert costs["r1"]["wait_s"] == 0.0
            hold.clear()
            calls = [asyncio.create_task(gateway.call()) for _ in range(3)]
            table = gateway.parts.table
            await until(lambda: sum(table.in_flight().values()) == 3, "three calls are open")
            work = (await gateway.client.get("/weft/state")).json()["table"]["work"]
            assert work == table.work()
            assert work["r1"] == 3 * int(1e6 * costs["r1"]["cost_s"])
            text = (await gateway.client.get("/metrics")).text
            assert f'weft_replica_work_seconds{{replica="r1"}} {work["r1"] / 1e6}' in text
            assert 'weft_replica_work_seconds{replica="r0"} 0.0' in text
            assert f'weft_replica_token_seconds{{replica="r0",token="prompt"}} {SLOW}' in text
            assert (
                f'weft_replica_token_seconds{{replica="r1",token="answer"}} {0.001 + 100 * FAST}'
                in text
            )
            hold.set()
            await asyncio.gather(*calls)
            assert table.work() == {}


async def test_a_program_leaves_a_home_that_would_miss_its_target(engine, weft):
    engines = engine(**answering(SLOW)), engine(**answering(FAST))
    async with engines[0] as slow, engines[1] as fast:
        settings = {"balancer": "soonest", "locality_threshold_tokens": 0}
        async with weft(slow, fast, **settings) as gateway:
            for _ in range(3):
                await gateway.call()
            named = {"x-weft-program": "p"}
            late = named | {"x-weft-deadline-s": "60"}
            home = await place(gateway, await gateway.call(headers=late))
            # Both meet the target, so the fast replica stays free.
            assert (home["replica"], home["reason"]) == ("r0", "meets the budget")
            again = await place(gateway, await gateway.call(headers=named))
            assert (again["replica"], again["reason"]) == ("r0", "home")
            urgent = named | {"x-weft-deadline-s": "1"}
            moved = await place(gateway, await gateway.call(headers=urgent))
            assert (moved["replica"], moved["reason"]) == ("r1", "meets the budget")
            assert moved["rejected"] == {"r0": "late"}
            assert 0 < moved["budget_s"] <= 1
            stays = await place(gateway, await gateway.call(headers=late))
            assert (stays["replica"], stays["reason"]) == ("r1", "home")


async def test_stock_engines_are_fitted_by_the_times_of_their_calls(engine, weft):
    async def script(wire: Any, request: Any) -> None:
        usage = {"prompt_tokens": 1000, "completion_tokens": 50}
        await wire.plain({"choices": [], "usage": usage})

    async with engine(script=script) as one, weft(one, balancer="work") as gateway:
        first = await place(gateway, await gateway.call())
        assert (first["reason"], first["costs"]) == ("work", None)
        second = await place(gateway, await gateway.call())
        assert second["costs"]["r0"]["cost_s"] > 0


async def test_calls_are_not_predicted_without_a_balancer_or_targets_that_need_it(engine, weft):
    async with engine(**answering(FAST)) as one, weft(one, balancer="locality") as gateway:
        await gateway.call()
        assert (await place(gateway, await gateway.call()))["costs"] is None
        assert gateway.parts.budgets.costs.speed("r0") is None
        text = (await gateway.client.get("/metrics")).text
        assert 'weft_replica_healthy{replica="r0"} 1.0' in text
        assert "weft_replica_work_seconds{" not in text
