"""Budgets: the part of a deadline that one call may take (HexGen-Flow, section 4.2). Pure."""

from __future__ import annotations


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
