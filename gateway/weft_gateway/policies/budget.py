"""Budgets: the part of a deadline that one call may take (HexGen-Flow, section 4.2). Pure."""

from __future__ import annotations

from enum import StrEnum

from weft_gateway.model.slo import CallBudget


class Cause(StrEnum):
    """Why a call took longer than its budget."""

    DEADLINE = "deadline"
    EARLIER_CALLS = "earlier calls"
    HELD = "held"
    QUEUE = "queue"
    MEMORY = "memory"
    PREFILL = "prefill longer than predicted"
    ANSWER = "answer longer than predicted"


def budget(left_s: float, cost_s: float, remaining: int, later_s: float) -> float:
    """Return the seconds that a call may take (equation 5). left_s: until the target. cost_s: of
    this call, predicted. remaining: calls after this one on the program's path, on which parallel
    calls count once; later_s: the predicted cost of each. Without any predicted cost, all calls of
    the path get equal parts.
    """
    left_s = max(left_s, 0.0)
    path_s = cost_s + remaining * later_s
    if not path_s > 0 or not cost_s > 0:
        return left_s / (1 + remaining)
    return left_s * min(cost_s / path_s, 1.0)


def is_late(left_s: float, cost_s: float, remaining: int, later_s: float) -> bool:
    """Whether the predicted path does not fit into the time that is left."""
    return left_s <= 0 or left_s < cost_s + remaining * later_s


def split(
    left_s: float, cost_s: float, remaining: int, later_s: float
) -> tuple[float, bool, float]:
    """Return `budget_s`, `late` and `path_s` of a `CallBudget`. Arguments: as of `budget`."""
    return (
        budget(left_s, cost_s, remaining, later_s),
        is_late(left_s, cost_s, remaining, later_s),
        cost_s + remaining * later_s,
    )


def fits_without(found: CallBudget, held_s: float) -> bool:
    """Whether the predicted path had fitted if the call had not been held for these seconds."""
    return held_s > 0 and not is_late(found.left_s + held_s, found.path_s, 0, 0.0)


def cause_of_late(found: CallBudget, held_s: float) -> Cause:
    """Return why the target could not be met any more when the call was sent. held_s: for which it
    was held before.
    """
    if fits_without(found, held_s):
        return Cause.HELD
    return Cause.DEADLINE if found.late_at_first else Cause.EARLIER_CALLS


def cause(queue_s: float, memory_s: float, prefill_over_s: float, answer_over_s: float) -> Cause:
    """Return the main reason for a call over its budget whose path had fitted. queue_s, memory_s:
    waits. The last two: seconds above the predictions.
    """
    parts = {
        Cause.QUEUE: queue_s,
        Cause.MEMORY: memory_s,
        Cause.PREFILL: prefill_over_s,
        Cause.ANSWER: answer_over_s,
    }
    return max(parts, key=lambda name: parts[name])
