"""Why programs, turns and calls miss their targets. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from weft_engine.wire import CallReport

from weft_gateway.model.slo import CallBudget
from weft_gateway.policies.budget import fits_without


class Miss(StrEnum):
    """Why a unit missed its target.

    DEADLINE: the predicted path did not fit when the first call came. CLIENT: the time between
    calls. HELD: the gateway held the first call. QUEUE, MEMORY: waits. PREFILL, ANSWER: longer than
    predicted. FAILED: its call failed. GIVEN_UP: another unit began before its end, or no call came
    for too long. REFUSED: the gateway did not serve it. UNKNOWN: the engines reported too little.
    """

    DEADLINE = "deadline"
    CLIENT = "client"
    HELD = "held"
    QUEUE = "queue"
    MEMORY = "memory"
    PREFILL = "prefill"
    ANSWER = "answer"
    FAILED = "failed"
    GIVEN_UP = "given_up"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Overruns:
    """Seconds of a unit's calls beyond their predictions, and between the calls. late: the
    predicted path did not fit when the first call came. held_s: how long that call was held.
    """

    late: bool = False
    queue_s: float = 0.0
    memory_s: float = 0.0
    prefill_s: float = 0.0
    answer_s: float = 0.0
    client_s: float = 0.0
    held_s: float = 0.0

    def first(self, found: CallBudget, held_s: float) -> None:
        """Begin with the unit's first call. held_s: for which it was held before it was sent."""
        self.late = found.late and not fits_without(found, held_s)
        self.held_s = held_s

    def add(
        self, found: CallBudget, report: CallReport, first_byte_s: float | None, actual_s: float
    ) -> None:
        """Add a call. first_byte_s: from its sending, None if the answer was not streamed: then the
        prefill counts as long as predicted. actual_s: until its end.
        """
        waiting_s, memory_s = report.waiting_s, report.memory_wait_s
        self.memory_s += memory_s
        if waiting_s > memory_s:
            self.queue_s += waiting_s - memory_s
        if not found.cost_s:
            return
        prefill_s = found.prefill_s if first_byte_s is None else first_byte_s - waiting_s
        if prefill_s > found.prefill_s:
            self.prefill_s += prefill_s - found.prefill_s
        answer_s = actual_s - waiting_s - max(prefill_s, 0.0)
        if answer_s > found.answer_s:
            self.answer_s += answer_s - found.answer_s

    def cause(self, late_s: float) -> Miss:
        """Return why the unit ended this late, in seconds: the longest overrun, if the unit had met
        its target without overruns; otherwise the client's time, if that is long enough.
        """
        if self.late:
            return Miss.DEADLINE
        parts = {
            Miss.HELD: self.held_s,
            Miss.QUEUE: self.queue_s,
            Miss.MEMORY: self.memory_s,
            Miss.PREFILL: self.prefill_s,
            Miss.ANSWER: self.answer_s,
        }
        over_s = sum(parts.values())
        if over_s < late_s <= over_s + self.client_s:
            return Miss.CLIENT
        longest = max(parts, key=lambda name: parts[name])
        return longest if parts[longest] > 0 else Miss.UNKNOWN
