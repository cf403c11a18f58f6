"""Opening and closing, on the real memory table."""

from typing import Any

import httpx
import pytest
from weft_engine.wire import CallReport
from weft_gateway.api.ledger import Ledger, OpenCall
from weft_gateway.engine.advice import KvAdvisor
from weft_gateway.engine.estimate import PromptEstimator
from weft_gateway.engine.pool import Timeouts
from weft_gateway.engine.registry import Registry
from weft_gateway.engine.tokens import TokenCounter
from weft_gateway.model import Opening, Outcome, ProgramKey
from weft_gateway.programs.memory import MemoryTable
from weft_gateway.telemetry.metrics import Metrics

pytestmark = pytest.mark.anyio

KEY = ProgramKey("tenant", "run")
USED = CallReport(call="c1", service_s=2.0, prompt_tokens=500)


# Advice goes to replicas, and there are none.
NOBODY = KvAdvisor(Registry({}, Timeouts(1.0, 1.0, 1.0)), httpx.AsyncClient(), "")


class House:
    """A ledger and what it writes to."""

    def __init__(self) -> None:
        self.table = MemoryTable()
        self.metrics = Metrics()
        self.estimator = PromptEstimator()
        self.ledger = Ledger(self.table, self.metrics, self.estimator, TokenCounter(), NOBODY)

    async def open(self, call: str, *, ephemeral: bool = False, final: bool = False) -> OpenCall:
        opened = await self.ledger.open(
            Opening(KEY, call, "main", "r0", frozenset({"r0"}), False, 1.0, ephemeral)
        )
        return OpenCall(KEY, call, "chat", "m", 1000, opened.replica, opened.program, final)

    async def programs(self) -> int:
        return (await self.table.counts()).alive


async def test_a_call_is_closed_once() -> None:
    house = House()
    call = await house.open("c1")
    await house.ledger.close(call, Outcome.OK, USED)
    await house.ledger.close(call, Outcome.ERROR, None)
    program = await house.table.get(KEY)
    assert program is not None
    assert (program.calls, program.errors, program.service_s) == (1, 0, 2.0)
    sample = house.metrics.registry.get_sample_value
    labels = {"endpoint": "chat", "replica": "r0"}
    assert sample("weft_calls_total", labels | {"outcome": "ok"}) == 1
    assert sample("weft_calls_total", labels | {"outcome": "error"}) == 0


async def test_good_calls_teach_the_estimator() -> None:
    house = House()
    await house.ledger.close(await house.open("c1"), Outcome.OK, USED)
    assert house.estimator.estimate("m", 1000) > 250


async def test_a_call_of_which_nothing_can_be_learned_is_closed_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    house = House()
    call = await house.open("c1")

    def refuse(*_: object) -> None:
        raise ValueError("not to be learned")

    monkeypatch.setattr(house.estimator, "learn", refuse)
    await house.ledger.close(call, Outcome.OK, USED)
    program = await house.table.get(KEY)
    assert program is not None
    assert (program.calls_closed, len(program.threads)) == (1, 0)


async def test_what_was_used_is_asked_for_before_a_late_closing() -> None:
    house = House()
    call = await house.open("c1")

    async def ask() -> CallReport:
        program = await house.table.get(KEY)
        assert program is not None
        assert len(program.threads) == 1  # Still open while the engine is asked.
        return USED

    house.ledger.close_later(call, Outcome.ABORTED, ask)
    await house.ledger.settle(10)
    program = await house.table.get(KEY)
    assert program is not None
    assert (program.service_s, program.threads) == (2.0, ())


async def test_an_engine_that_cannot_be_asked_does_not_keep_a_call_open() -> None:
    house = House()

    async def ask() -> CallReport:
        raise RuntimeError("no answer")

    house.ledger.close_later(await house.open("c1"), Outcome.ABORTED, ask)
    await house.ledger.settle(10)
    assert house.table.in_flight().get("r0", 0) == 0


@pytest.mark.parametrize(
    ("options", "left"), [({}, 1), ({"ephemeral": True}, 0), ({"final": True}, 0)]
)
async def test_the_count_of_programs_follows_the_table(options: Any, left: int) -> None:
    house = House()
    call = await house.open("c1", **options)
    assert await house.programs() == 1
    await house.ledger.close(call, Outcome.OK, None)
    assert await house.programs() == left
    assert (await house.table.get(KEY) is not None) == bool(left)


async def test_a_final_call_ends_its_program_after_the_calls_beside_it() -> None:
    house = House()
    beside = await house.open("c1")
    final = await house.open("c2", final=True)
    await house.ledger.close(final, Outcome.OK, None)
    assert await house.programs() == 1
    await house.ledger.close(beside, Outcome.OK, None)
    assert await house.programs() == 0
    assert await house.table.check() == []
