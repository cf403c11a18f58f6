"""Opening and closing calls: the process table, what metrics and the estimator learn from it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from time import perf_counter, time
from typing import Any, Final

from weft_engine.wire import CallReport

from weft_gateway.api.limits import Admitted, TenantLimits
from weft_gateway.engine.advice import KvAdvisor
from weft_gateway.engine.estimate import PromptEstimator
from weft_gateway.engine.tokens import Counted, TokenCounter
from weft_gateway.model import Closing, Opened, Opening, Outcome, Program, ProgramKey
from weft_gateway.overlap.prefill import Prefill
from weft_gateway.programs.table import ProcessTable, TableUnavailable
from weft_gateway.telemetry.metrics import Metrics
from weft_gateway.telemetry.receipts import Receipt
from weft_gateway.telemetry.tasks import Spawner

log = logging.getLogger(__name__)

_RETRIES: Final = 6
_RETRY_S: Final = 0.5


@dataclass(slots=True)
class OpenCall:
    """A call that is open in the table. final: its program ends with it. local: it was opened while
    the table's store was away. model, body_bytes, counted: what estimators
    learn from. receipt: what is kept of it. prefill: the handle that it extends. saved_s: seconds
    by overlap, None where there are none. admitted: as in Request. closed: the
    closing has been decided, whether written yet or not."""

    key: ProgramKey
    call: str
    endpoint: str
    model: str
    body_bytes: int
    replica: str
    program: Program
    final: bool = False
    local: bool = False
    counted: Counted | None = None
    receipt: Receipt | None = None
    prefill: Prefill | None = None
    saved_s: Mapping[str, float] | None = None
    admitted: Admitted | None = None
    closed: bool = False


class Ledger:
    """Keeps open calls in the table equal to calls in flight, whatever happens to them."""

    def __init__(
        self,
        table: ProcessTable,
        metrics: Metrics,
        estimator: PromptEstimator,
        tokens: TokenCounter,
        advisor: KvAdvisor,
        limits: TenantLimits | None = None,
    ) -> None:
        self._table = table
        self._metrics = metrics
        self._estimator = estimator
        self._tokens = tokens
        self._advisor = advisor
        self._limits = limits
        self._spawner = Spawner("ledger", metrics.task_failures)

    def open(self, opening: Opening) -> Awaitable[Opened]:
        """Open a call. TableUnavailable: nothing has changed."""
        return self._table.open_call(opening)

    async def close(self, call: OpenCall, outcome: Outcome, report: CallReport | None) -> None:
        """Close a call, once: later closings of the same call do nothing. Where the table cannot be
        reached, the closing is tried again behind the client's back."""
        if call.closed:
            return
        call.closed = True
        try:
            self._learn(call, outcome, report)
        except Exception:
            # What is learned of a call is worth less than its closing.
            log.exception("nothing could be learned from call %s", call.call)
        closing = _closing(call, outcome, report)
        try:
            await self._write(call, closing)
        except TableUnavailable:
            self._metrics.error("table_unavailable")
            self.spawn(self._write_later(call, closing))
        except asyncio.CancelledError:
            self.spawn(self._write_later(call, closing))
            raise

    async def end(self, key: ProgramKey, now_s: float) -> Program | None:
        """End a program by its handle; engines need not keep its KV for it. None if it is unknown.
        TableUnavailable."""
        program = await self._table.end(key, now_s)
        if program is not None and not program.threads:
            self.spawn(self._advisor.forget(key, program.replicas))
        return program

    def close_later(
        self,
        call: OpenCall,
        outcome: Outcome,
        ask: Callable[[], Awaitable[CallReport | None]] | None = None,
    ) -> None:
        """Close a call off the hot path, after asking what it had used."""
        if not call.closed:
            self.spawn(self._ask_and_close(call, outcome, ask))

    async def settle(self, timeout_s: float) -> None:
        """Wait for what is still being written, at most `timeout_s` seconds."""
        await self._spawner.settle(timeout_s)

    async def _ask_and_close(
        self,
        call: OpenCall,
        outcome: Outcome,
        ask: Callable[[], Awaitable[CallReport | None]] | None,
    ) -> None:
        report = None
        try:
            report = await ask() if ask is not None else None
        except Exception:
            log.exception("asking about call %s failed", call.call)
        finally:
            await self.close(call, outcome, report)

    async def _write(self, call: OpenCall, closing: Closing) -> None:
        program = await self._table.close_call(closing)
        if program is not None and program.ended and not program.threads:
            # Its handle was deleted while this call, its last one, was in flight.
            self.spawn(self._advisor.forget(call.key, (call.replica, *program.replicas)))
        elif call.final:
            await self.end(call.key, time())

    async def _write_later(self, call: OpenCall, closing: Closing) -> None:
        for attempt in range(_RETRIES):
            try:
                await self._write(call, closing)
                return
            except TableUnavailable:
                await asyncio.sleep(_RETRY_S * 2**attempt)
        log.error("call %s could not be closed in the process table", call.call)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run it behind the client's back; `settle` waits for it. Its exceptions are logged and
        counted."""
        self._spawner.spawn(work)

    def _learn(self, call: OpenCall, outcome: Outcome, report: CallReport | None) -> None:
        metrics = self._metrics.bind(call.endpoint, call.replica)
        metrics.outcomes[outcome].inc()
        receipt = call.receipt
        if receipt is not None:
            receipt.outcome, receipt.report = outcome, report
            receipt.total_s = perf_counter() - receipt.begun
        if report is None:
            return
        metrics.used(
            report.service_s,
            report.waiting_s,
            report.prompt_tokens,
            report.cached_tokens,
            report.output_tokens,
            report.preemptions,
        )
        if call.admitted is not None and self._limits is not None:
            self._limits.used(call.admitted, report.prompt_tokens + report.output_tokens)
        if outcome is Outcome.OK:
            self._estimator.learn(call.model, call.body_bytes, report.prompt_tokens)
            if call.counted is not None:
                self._tokens.learn(call.counted, report.prompt_tokens)
            if call.prefill is not None and not call.prefill.used:
                # Once: what comes after this turn finds what the turn has left.
                call.prefill.used = True
                self._saved(call, "prefill", call.prefill.saved_s(report))

    def _saved(self, call: OpenCall, overlap: str, seconds: float) -> None:
        self._metrics.saved.labels(overlap).inc(seconds)
        call.saved_s = {**(call.saved_s or {}), overlap: seconds}
        if call.receipt is not None:
            call.receipt.saved_s = call.saved_s

    def dispatched(self, call: OpenCall, ahead: tuple[tuple[str, float], ...]) -> None:
        """The tools of an answer that has ended were told so many seconds before. What is saved for
        sure is the least of them: nobody here knows which tool will be the last to finish."""
        if ahead:
            if call.receipt is not None:
                call.receipt.tools = ahead
            self._saved(call, "dispatch", min(seconds for _, seconds in ahead))


def _closing(call: OpenCall, outcome: Outcome, report: CallReport | None) -> Closing:
    if report is None:
        return Closing(call.key, call.call, time(), outcome)
    return Closing(
        call.key,
        call.call,
        time(),
        outcome,
        report.service_s,
        report.waiting_s,
        report.prompt_tokens,
        report.cached_tokens,
        report.output_tokens,
        report.preemptions,
    )
