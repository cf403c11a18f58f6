"""Adds the calls that end to the journal."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter, time

from weft_gateway.calls.call import Call
from weft_gateway.calls.observers import CallObserver
from weft_gateway.telemetry.journal import Journal, JournalCall


@dataclass(slots=True, eq=False)
class JournalObserver(CallObserver):
    """Writes one line a call. It computes nothing that the call has not needed. It comes before the
    observer that keeps the prompt, and so forgets what it continues.
    """

    journal: Journal

    def closed(self, call: Call) -> None:
        """Add the call, unless another replica has it now."""
        placed = call.placed
        if call.superseded or placed is None:
            return
        total_s, report = perf_counter() - call.begun, call.report
        found, continues, common = call.found, "", 0.0
        if found is not None and found.before is not None:
            continues, common = found.before.call, found.reach[0]
        # By position: keywords would double the cost.
        self.journal.add(
            JournalCall(
                call.id,
                call.key,
                call.identity.thread,
                call.model,
                call.endpoint.name,
                call.replica,
                call.stage,
                time() - total_s,
                call.sent_s if call.overhead_s else 0.0,
                call.first_byte_s,
                total_s,
                call.outcome,
                call.usage,
                None if report is None else report.service_s,
                0.0 if call.budget is None else call.budget.deadline_s,
                placed.prefix,
                continues,
                common,
            )
        )
