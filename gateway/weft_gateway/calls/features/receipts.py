"""Receipts of calls: the choice of the replica and the outcome."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter, time
from typing import Final

from weft_gateway.calls.call import UNIDENTIFIED, UNKNOWN_CALLER, Call
from weft_gateway.calls.observers import CallObserver
from weft_gateway.calls.placement import counted_alone
from weft_gateway.model import ProgramKey
from weft_gateway.policies.hints import CAN_WAIT, THERE, with_replica_fate
from weft_gateway.programs.identity import Identity
from weft_gateway.programs.lineage.rules import shown
from weft_gateway.telemetry.receipts import Receipt, Receipts

_NOT_TAKEN: Final = "ignored: the replica does not run the plugin"


class ReceiptsObserver(CallObserver):
    """Writes a receipt for each call."""

    def __init__(self, receipts: Receipts, named: Callable[[Call], Identity | None]) -> None:
        """named: the identity by path and headers, for a call with an unusable body."""
        self._receipts = receipts
        self._named = named

    def opened(self, call: Call) -> None:
        """Create the receipt with the choice of the replica."""
        identity, placed = call.identity, call.placed
        assert placed is not None
        # By position: keywords would double the cost.
        call.receipt = receipt = Receipt(
            call.request_id.decode(),
            call.id,
            identity.key,
            identity.thread,
            identity.parent,
            identity.source,
            call.endpoint.name,
            call.model,
            time() - (perf_counter() - call.begun),
            placed.decision,
            call.replica,
            placed.prompt_tokens,
            None,
            placed.reason,
        )
        receipt.begun, receipt.failed = call.begun, call.failed
        if call.asked is not None:
            verdict = call.asked.verdict
            receipt.lineage = verdict.owner, verdict.thread, verdict.parent
            if verdict.joined:
                receipt.joined = tuple(
                    [shown(*joined, verdict.program) for joined in verdict.joined]
                )
        self._receipts.add(receipt)

    def sending(self, call: Call) -> None:
        """Record the data sent to the engine, and the predictions."""
        receipt = call.receipt
        if receipt is None:
            return
        receipt.overhead_s, receipt.held_s = call.overhead_s, call.held_s
        receipt.context, receipt.predicted_service_s = call.context, call.expected_s
        receipt.budget, receipt.repairs = call.budget, call.repairs
        if call.fates:
            receipt.hints = _fates(call.fates, taken=call.context is not None)
        counted = counted_alone(call)
        if counted is not None and counted.ends:
            receipt.predicted_tokens = counted.tokens

    def head(self, call: Call) -> None:
        """Record the start of the answer."""
        if call.receipt is not None:
            call.receipt.first_byte_s, call.receipt.status = call.first_byte_s, call.status

    def closed(self, call: Call) -> None:
        """Record the outcome of the call."""
        receipt = call.receipt
        if receipt is not None:
            report = call.report
            receipt.outcome, receipt.report, receipt.budget = call.outcome, report, call.budget
            receipt.answer_usage, receipt.sources = call.answer_usage, call.sources
            receipt.held_s = call.held_s
            if report is not None and report.memory_wait_s:
                receipt.memory_wait_s = report.memory_wait_s
                receipt.memory_tokens = report.memory_tokens
                receipt.programs_ahead = report.programs_ahead
            receipt.saved_s, receipt.tools = call.saved_s, call.tools
            receipt.total_s = perf_counter() - receipt.begun

    def ended(self, call: Call) -> None:
        """Record the error that the client gets, including calls refused before they
        had a receipt.
        """
        error = call.error
        if error is None or not error.status or call.caller is UNKNOWN_CALLER:
            return
        receipt = call.receipt
        if receipt is None:
            identity = self._named(call) if call.identity is UNIDENTIFIED else call.identity
            key = ProgramKey(call.caller.tenant, "") if identity is None else identity.key
            receipt = Receipt.refused(
                call.request_id.decode(), call.id, key, call.endpoint.name, time()
            )
            receipt.begun, receipt.model = call.begun, call.model
            if identity is not None:
                receipt.thread, receipt.source = identity.thread, identity.source
            self._receipts.add(receipt)
        if not call.fates:
            # The call was not sent, so no replica can take its hints.
            fates = with_replica_fate(call.hints.fates, False, "the call was refused")
            receipt.hints = _fates(fates, taken=True)
        receipt.fail(error.status, error.code, perf_counter())


def _fates(fates: tuple[str, ...], *, taken: bool) -> tuple[tuple[str, str], ...]:
    """Return names and fates. A valid hint is ignored if the engine does not run the plugin."""
    found = []
    for text in fates:
        name, _, fate = text.partition("=")
        # The gateway alone applies these hints.
        if not taken and fate.startswith("applied") and fate not in (THERE, CAN_WAIT):
            fate = _NOT_TAKEN
        found.append((name, fate))
    return tuple(found)
