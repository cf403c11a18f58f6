"""Opens and closes calls: exactly once each in the process table, in all cases."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from time import time
from types import TracebackType
from typing import Final

from weft_engine.wire import CallReport

from weft_gateway.calls.call import PREFILL, Call, Placed
from weft_gateway.calls.observers import notify
from weft_gateway.calls.spending import Spending
from weft_gateway.engine.advice import KvAdvisor
from weft_gateway.engine.errors import ClientGone
from weft_gateway.model import Closing, Opening, Outcome, Program, ProgramKey, ReplicaCost
from weft_gateway.model.spending import NO_ALLOWANCE, Reserve
from weft_gateway.model.usage import Payer
from weft_gateway.policies.route.prefixes import PrefixAffinityIndex
from weft_gateway.programs.table import BudgetSpent, ProcessTable, TableUnavailable
from weft_gateway.telemetry.metrics import client_name
from weft_gateway.telemetry.tasks import Spawner

log = logging.getLogger(__name__)

_RETRIES: Final = 6
_RETRY_S: Final = 0.5
_NO_COSTS: Final[Mapping[str, int]] = {}

Ask = Callable[[Call], Awaitable[CallReport | None]]


class OpenCall:
    """A call that is open in the process table. Leaving the context closes it.

    `call.outcome` and `call.report` describe its end. If the client has disconnected, the engine is
    asked for the call's usage, and the closing runs in the background.
    """

    __slots__ = ("_close", "call")

    def __init__(
        self, call: Call, close: Callable[[Call, BaseException | None], Awaitable[None]]
    ) -> None:
        self.call = call
        self._close = close

    def supersede(self, call_id: str) -> None:
        """Close the attempt so far with this context. The call continues on another replica under a
        new id.
        """
        self.call = self.call.split(call_id)

    async def __aenter__(self) -> Call:
        return self.call

    def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> Awaitable[None]:
        return self._close(self.call, error)


@dataclass(slots=True, eq=False)
class Lifecycle:
    """Keeps the open calls in the process table equal to the calls in flight.

    prefixes: records where prompts go. advisor: reports ended programs to engines. ask: requests an
    engine's report on a call without one. spawner: runs work beside the calls. count_error: for
    metrics, by code. spending: budgets. ended: called with each program that ended by its handle or
    its last call.
    """

    table: ProcessTable
    prefixes: PrefixAffinityIndex
    advisor: KvAdvisor
    ask: Ask
    spawner: Spawner
    count_error: Callable[[str], None]
    spending: Spending
    ended: Callable[[Program], None] = lambda program: None

    async def open(self, call: Call, placed: Placed) -> OpenCall:
        """Open a call on the replica that the table chooses. Raises TableUnavailable and
        BudgetExhausted without a change.
        """
        spending = self.spending
        reserve = spending.claim(call, placed)
        try:
            opened = await self.table.open_call(self._opening(call, placed, reserve))
        except BudgetSpent as error:
            raise spending.refused(call, error) from None
        if call.ask is not None and call.ask.turn:
            # Another attempt of this call begins no other turn.
            call.ask = replace(call.ask, turn=False)
        # No await from here until the context is entered.
        call.replica, call.program, call.local = opened.replica, opened.program, opened.local
        call.placed = placed
        if opened.accounts or opened.program.allowance is not NO_ALLOWANCE:
            spending.opened(call, opened.program, opened.accounts)
        if placed.prefix is not None:
            call.shared_tokens = self.prefixes.sent(opened.replica, placed.prefix)
        return OpenCall(call, self._close)

    def _opening(self, call: Call, placed: Placed, reserve: Reserve) -> Opening:
        identity, decision = call.identity, placed.decision
        return Opening(
            identity.key,
            call.id,
            identity.thread,
            placed.replica,
            decision.eligible | decision.homes if decision.homes else decision.eligible,
            placed.sticky,
            time(),
            identity.ephemeral,
            identity.parent,
            call.ask,
            _microseconds(decision.costs) if decision.costs else _NO_COSTS,
            reserve,
            call.charges,
            call.allowance,
            bool(call.failed),
        )

    async def end(self, key: ProgramKey, now_s: float) -> Program | None:
        """End a program by its handle, and let engines release its KV. None if it is unknown.
        Raises TableUnavailable.
        """
        program = await self.table.end(key, now_s)
        if program is not None and not program.threads:
            self.ended(program)
            self.spawner.spawn(self.advisor.advise(key, program.replicas, "forget"))
        return program

    def _close(self, call: Call, error: BaseException | None) -> Awaitable[None]:
        """Close a call. Work that waits for others runs in the background."""
        if isinstance(error, ClientGone):
            call.outcome = Outcome.ABORTED
            self.spawner.spawn(self._ask_and_write(call))
        elif call.superseded:
            self.spawner.spawn(self._write(call))
        else:
            return self._write(call)
        return _done()

    async def _ask_and_write(self, call: Call) -> None:
        try:
            call.report = await self.ask(call)
        except Exception:
            log.exception("the report request for call %s failed", call.id)
        await self._write(call)

    async def _write(self, call: Call) -> None:
        """Notify the observers, and write the closing; later if the table is away."""
        try:
            pending = notify(call.hooks.closed, call)
            if pending is not None:
                await pending
            await self._write_once(call)
        except TableUnavailable:
            self.count_error("table_unavailable")
            self.spawner.spawn(self._write_later(call))
        except asyncio.CancelledError:
            self.spawner.spawn(self._write_later(call))
            raise

    async def _write_once(self, call: Call) -> None:
        program = await self.table.close_call(self._closing(call))
        if program is not None and call.balances:
            self.spending.closed(call, program)
        if program is not None and program.ended and not program.threads:
            # Its handle was deleted while this last call was in flight.
            self.ended(program)
            names = (call.replica, *program.replicas)
            self.spawner.spawn(self.advisor.advise(call.key, names, "forget"))
        elif call.identity.final:
            await self.end(call.key, time())

    async def _write_later(self, call: Call) -> None:
        for attempt in range(_RETRIES):
            try:
                await self._write_once(call)
                return
            except TableUnavailable:
                await asyncio.sleep(_RETRY_S * 2**attempt)
        log.error("call %s could not be closed in the process table", call.id)

    def _closing(self, call: Call) -> Closing:
        report, advance = call.report, call.endpoint is PREFILL
        service_s, waiting_s, preemptions = 0.0, 0.0, 0
        prompt, cached, output = (0, 0, 0) if call.answer_usage is None else call.answer_usage[:3]
        if report is not None:
            service_s, waiting_s = report.service_s, report.waiting_s
            prompt, cached, output, preemptions = (
                report.prompt_tokens, report.cached_tokens, report.output_tokens,
                report.preemptions,
            )  # fmt: skip
        elif call.answer_usage is None and call.balances and call.status and call.good:
            # The engine told nothing. A budget counts the estimated prompt.
            prompt = 0 if call.placed is None else call.placed.prompt_tokens
        prices, now_s, price = self.spending.prices, time(), 0
        if prices:
            price = prices.nanodollars(call.model, now_s, prompt, cached, output, service_s)
        return Closing(
            call.identity.key, call.id, now_s, call.outcome, service_s, waiting_s, prompt, cached,
            output, preemptions, advance,
            price, None if call.superseded else _payer(call),
        )  # fmt: skip


def _microseconds(costs: Mapping[str, ReplicaCost]) -> dict[str, int]:
    """Return predicted costs as integers, whose sums return to exactly 0."""
    return {name: int(cost.cost_s * 1e6) for name, cost in costs.items()}


def _payer(call: Call) -> Payer:
    """Return whose usage a call is."""
    identity, name = call.identity, call.endpoint.name
    agent = "batch" if name.startswith("batch_") else name
    if agent != "batch" and call.endpoint is not PREFILL:
        agent = client_name(call.headers)
    tenant, program = identity.key
    return Payer(tenant, agent, call.model, "" if identity.ephemeral else program)


async def _done() -> None:
    pass
