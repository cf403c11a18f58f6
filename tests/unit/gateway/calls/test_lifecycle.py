"""Opening and closing of calls on the real memory table."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest
from weft_engine.wire import CallReport
from weft_gateway.calls.call import Call, Placed
from weft_gateway.calls.lifecycle import Lifecycle, OpenCall
from weft_gateway.calls.observers import CallObserver, Observers
from weft_gateway.engine.advice import KvAdvisor
from weft_gateway.engine.endpoints import BY_PATH
from weft_gateway.engine.errors import ClientGone
from weft_gateway.engine.fetch import EngineClient
from weft_gateway.engine.pool import Timeouts
from weft_gateway.engine.registry import Registry
from weft_gateway.model import Decision, Outcome, ProgramKey
from weft_gateway.policies.route.prefixes import PrefixAffinityIndex
from weft_gateway.programs.identity import Identity
from weft_gateway.programs.memory import MemoryTable
from weft_gateway.telemetry.metrics import Metrics
from weft_gateway.telemetry.tasks import Spawner

pytestmark = pytest.mark.anyio

KEY = ProgramKey("tenant", "run")
USED = CallReport(call="c1", service_s=2.0, prompt_tokens=500)
PLACED = Placed("r0", False, Decision("r0", False, frozenset({"r0"}), "only one"), 1, "", None)


class Counts(CallObserver):
    """Counts closed calls. fails: raises on each close."""

    def __init__(self) -> None:
        self.closings: list[tuple[str, Outcome]] = []
        self.fails = False

    def closed(self, call: Call) -> None:
        if self.fails:
            raise RuntimeError("an observer failed")
        self.closings.append((call.id, call.outcome))


class House:
    """A lifecycle with its dependencies. said: the engine's report, on request."""

    def __init__(self) -> None:
        self.table = MemoryTable()
        self.counts = Counts()
        self.ask: Callable[[Call], CallReport] = lambda _: USED
        self.observers = Observers()
        self.observers.add(self.counts)
        metrics = Metrics()
        self.spawner = Spawner("ledger", metrics.task_failures)

        async def ask(call: Call) -> CallReport:
            return self.ask(call)

        self.lifecycle = Lifecycle(
            self.table,
            PrefixAffinityIndex(0),
            # The advisor has no replica to notify.
            KvAdvisor(Registry({}, Timeouts(1.0, 1.0, 1.0)), EngineClient(httpx.AsyncClient())),
            ask,
            self.spawner,
            metrics.error,
        )

    async def open(self, name: str, *, ephemeral: bool = False, final: bool = False) -> OpenCall:
        chat = BY_PATH["/v1/chat/completions"]
        call = Call(name, chat, [], b"req", 0.0, self.observers.of(chat))
        call.identity = Identity(KEY, "main", "", "path", ephemeral, final)
        return await self.lifecycle.open(call, PLACED)

    async def programs(self) -> int:
        return (await self.table.counts()).alive

    async def program(self) -> Any:
        program = await self.table.get(KEY)
        assert program is not None
        return program


async def test_context_exit_closes_the_call() -> None:
    house = House()
    async with await house.open("c1") as call:
        assert house.table.in_flight() == {"r0": 1}
        call.outcome, call.report = Outcome.OK, USED
    program = await house.program()
    assert (program.calls, program.errors, program.service_s) == (1, 0, 2.0)
    assert house.counts.closings == [("c1", Outcome.OK)]


async def test_call_that_raises_is_closed_as_an_error() -> None:
    house = House()
    with pytest.raises(KeyError):
        async with await house.open("c1"):
            raise KeyError
    assert (await house.program()).errors == 1


async def test_failing_observer_does_not_keep_the_call_open(
    caplog: pytest.LogCaptureFixture,
) -> None:
    house = House()
    house.counts.fails = True
    async with await house.open("c1") as call:
        call.outcome = Outcome.OK
    program = await house.program()
    assert (program.calls_closed, program.threads) == (1, ())
    assert "an observer of call c1 failed" in caplog.text


async def test_engine_report_is_fetched_after_a_disconnect() -> None:
    house = House()
    open_when_asked = []

    def ask(call: Call) -> CallReport:
        open_when_asked.append(house.table.in_flight().get("r0"))
        return USED

    house.ask = ask
    with pytest.raises(ClientGone):
        async with await house.open("c1"):
            raise ClientGone
    await house.spawner.settle(10)
    program = await house.program()
    assert (open_when_asked, program.service_s, program.threads) == ([1], 2.0, ())
    assert house.counts.closings == [("c1", Outcome.ABORTED)]


async def test_unreachable_engine_does_not_keep_the_call_open() -> None:
    house = House()

    def ask(call: Call) -> CallReport:
        raise RuntimeError("no answer")

    house.ask = ask
    with pytest.raises(ClientGone):
        async with await house.open("c1"):
            raise ClientGone
    await house.spawner.settle(10)
    assert house.table.in_flight().get("r0", 0) == 0


async def test_superseded_attempt_closes_after_the_next_one_opens() -> None:
    house = House()
    first = await house.open("c1", ephemeral=True)
    async with first as call:
        first.supersede("c2")
        second = await house.lifecycle.open(call, PLACED)
    async with second as call:
        await house.spawner.settle(10)
        assert house.counts.closings == [("c1", Outcome.ERROR)]
        assert house.table.in_flight() == {"r0": 1}
        call.outcome = Outcome.OK
    assert house.counts.closings == [("c1", Outcome.ERROR), ("c2", Outcome.OK)]
    assert (await house.table.counts())[:2] == (1, 1)


@pytest.mark.parametrize(
    ("options", "left"), [({}, 1), ({"ephemeral": True}, 0), ({"final": True}, 0)]
)
async def test_program_count_follows_the_table(options: Any, left: int) -> None:
    house = House()
    async with await house.open("c1", **options) as call:
        assert await house.programs() == 1
        call.outcome = Outcome.OK
    assert await house.programs() == left
    assert (await house.table.get(KEY) is not None) == bool(left)


async def test_final_call_ends_its_program_after_concurrent_calls() -> None:
    house = House()
    async with await house.open("c1"):
        async with await house.open("c2", final=True):
            pass
        assert await house.programs() == 1
    assert await house.programs() == 0
    assert await house.table.check() == []
