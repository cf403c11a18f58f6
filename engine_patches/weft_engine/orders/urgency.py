"""Urgency: the call with the least slack to its budget first (HexGen-Flow 4.2)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from weft_engine.orders.base import CallView, OneQueue


@dataclass(frozen=True, slots=True)
class Urgency(OneQueue):
    """U = t_comp - (t_SLO - tau), the largest first (equations 7 and 8).

    tau, the time in the queue, grows alike for all that wait, so U orders calls as
    queued + t_SLO - t_comp does, and ranks need no refreshing. default_budget_s stands in for
    calls without a budget, which so cannot be passed over for ever. ValueError if it is not
    positive.
    """

    default_budget_s: float = 60.0
    name: str = "urgency"

    def __post_init__(self) -> None:
        if not (self.default_budget_s > 0 and math.isfinite(self.default_budget_s)):
            raise ValueError(f"default_budget_s must be positive, got {self.default_budget_s}")

    def rank(self, view: CallView) -> float:
        """The instant at which waiting on would miss the budget; the earliest is most urgent."""
        budget = self.default_budget_s if view.budget_s is None else view.budget_s
        return view.queued_s + budget - (view.cost_s or 0.0)
