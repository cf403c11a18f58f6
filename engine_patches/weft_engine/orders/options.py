"""The options of the orders: their names, defaults and limits."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

from weft_engine.orders.ladder import QueueLadder


class OrderOptions(BaseModel, frozen=True, extra="forbid", strict=True, allow_inf_nan=False):
    """Options of all orders. Each order reads its own ones, so that you can switch orders at run
    time.

    queues, first_quantum_s, growth: see QueueLadder. beta, resident_factor: see Order.
    default_budget_s: of calls without a budget. due_margin_s, due_share: see DueRules. margin_s:
    see `srpt`. experiments: allows orders that need knowledge which no service has.
    """

    queues: Annotated[int, Field(ge=1)] = 8
    first_quantum_s: Annotated[float, Field(gt=0)] = 0.5
    growth: Annotated[float, Field(ge=1)] = 2.0
    beta: Annotated[float, Field(gt=0)] = 10.0
    resident_factor: Annotated[float, Field(ge=0)] = 2.0
    default_budget_s: Annotated[float, Field(gt=0)] = 60.0
    due_margin_s: Annotated[float, Field(ge=0)] = 5.0
    due_share: Annotated[float, Field(ge=0, lt=1)] = 0.75
    margin_s: Annotated[float, Field(ge=0)] = 0.0
    experiments: bool = False

    @property
    def ladder(self) -> QueueLadder:
        """The queues that the options describe."""
        return QueueLadder(self.queues, self.first_quantum_s, self.growth)
