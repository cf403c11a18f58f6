"""Why programs, turns and calls are late. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from weft_engine.wire import CallReport

from weft_gateway.model.slo import CallBudget


class Cause(StrEnum):
    """Why a unit or a call is late.

    WAITING: its calls waited for slots or KV memory, so it needs more replicas, less load, or more
    weight. WORK: the calls themselves take too long: the predicted path did not fit when the first
    one came, or they took longer than predicted, so it needs a later deadline, shorter answers or
    faster replicas. CLIENT: the time between its calls, which the client spends in tools.
    """

    WAITING = "waiting"
    WORK = "work"
    CLIENT = "client"


@dataclass(slots=True)
class Overruns:
    """Seconds that a unit's calls waited, that they took longer than predicted, and between them.
    late: the predicted path did not fit when the first call came.
    """

    late: bool = False
    waiting_s: float = 0.0
    work_s: float = 0.0
    client_s: float = 0.0

    def add(
        self, found: CallBudget, report: CallReport, first_byte_s: float | None, actual_s: float
    ) -> None:
        """Add a call. first_byte_s: from its sending, None if the answer was not streamed: then the
        prefill counts as long as predicted. actual_s: until its end.
        """
        self.waiting_s += report.waiting_s
        if not found.cost_s:
            return
        prefill_s = found.prefill_s
        if first_byte_s is not None:
            prefill_s = max(first_byte_s - report.waiting_s, 0.0)
        answer_s = actual_s - report.waiting_s - prefill_s
        self.work_s += max(prefill_s - found.prefill_s, 0.0) + max(answer_s - found.answer_s, 0.0)

    def cause(self, late_s: float) -> Cause:
        """Return why the unit is late by these seconds: the longer overrun, if it had been on time
        without overruns; otherwise the client's time, if that is long enough. Without a report of
        waits, all is work.
        """
        if self.late:
            return Cause.WORK
        over_s = self.waiting_s + self.work_s
        if over_s < late_s <= over_s + self.client_s:
            return Cause.CLIENT
        return Cause.WAITING if self.waiting_s > self.work_s else Cause.WORK
