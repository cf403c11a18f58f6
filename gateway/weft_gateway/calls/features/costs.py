"""Learns the costs of calls."""

from __future__ import annotations

from dataclasses import dataclass

from weft_gateway.calls.budgets import Budgets
from weft_gateway.calls.call import Call
from weft_gateway.calls.observers import CallObserver
from weft_gateway.programs.table import ProcessTable


@dataclass(slots=True, eq=False)
class CostObserver(CallObserver):
    """Learns from answered calls. every: also from calls without a budget."""

    budgets: Budgets
    table: ProcessTable
    every: bool

    def closed(self, call: Call) -> None:
        """Learn the cost of the call on its replica."""
        if (self.every or call.budget is not None) and not call.superseded:
            self.budgets.closed(call, self.table.in_flight().get(call.replica, 1))
