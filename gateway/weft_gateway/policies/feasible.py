"""Admission of programs by their targets, at the first call of each. Pure."""

from __future__ import annotations

from math import ceil
from typing import Final

from weft_gateway.model.slo import CallBudget

_MOST_RETRY_S: Final = 3600


def path_s(found: CallBudget, wait_s: float) -> float:
    """Return the seconds that a program's path may take after this wait: the median, with a margin
    up to the 90th percentile. The margin is at most the wait. Forecasts do not include the waits of
    later calls; the margin stands for them. Without a wait, a refusal helps no other program, so
    the median is used.
    """
    return found.whole_s + min(wait_s, max(0.0, found.whole_p90_s - found.whole_s))


def can_be_met(found: CallBudget, wait_s: float) -> bool:
    """Whether a program can meet its target. found: with forecasts from programs of this kind.
    wait_s: predicted wait for the calls before it. Nothing shows that a program of an unknown cost
    cannot.
    """
    return not found.cost_s or wait_s + path_s(found, wait_s) <= found.left_s


def retry_after_s(found: CallBudget, wait_s: float) -> int:
    """Return the seconds until the wait has become short enough for the target. If the path alone
    takes longer, a retry does not help either, and this is the wait.
    """
    excess_s = wait_s + path_s(found, wait_s) - found.left_s
    return min(max(1, ceil(min(excess_s, wait_s))), _MOST_RETRY_S)
