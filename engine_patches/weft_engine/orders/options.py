"""The options of the orders: their names, defaults and limits."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Annotated, Any

from pydantic import BaseModel, Field, ValidationError

from weft_engine.orders.ladder import QueueLadder


class OrderOptions(BaseModel, frozen=True, extra="forbid", strict=True, allow_inf_nan=False):
    """Options of all orders. Each order reads its own ones, so that you can switch orders at run
    time.

    queues, first_quantum_s, growth: see QueueLadder. beta, resident_factor: see Order.
    default_budget_s: of calls without a budget.
    """

    queues: Annotated[int, Field(ge=1)] = 8
    first_quantum_s: Annotated[float, Field(gt=0)] = 0.5
    growth: Annotated[float, Field(ge=1)] = 2.0
    beta: Annotated[float, Field(gt=0)] = 10.0
    resident_factor: Annotated[float, Field(ge=0)] = 2.0
    default_budget_s: Annotated[float, Field(gt=0)] = 60.0

    @property
    def ladder(self) -> QueueLadder:
        """The queues that the options describe."""
        return QueueLadder(self.queues, self.first_quantum_s, self.growth)

    def changed(self, changes: Mapping[str, Any]) -> OrderOptions:
        """Return the options with these changes. ValueError names each invalid one, and for an
        unknown option the nearest name."""
        try:
            return OrderOptions.model_validate({**self.model_dump(), **changes})
        except ValidationError as error:
            wrong = []
            for one in error.errors():
                name = str(one["loc"][0])
                nearest = get_close_matches(name, OrderOptions.model_fields, 1)
                unknown = "; did you mean " + nearest[0] + "?" if nearest else ""
                what = f"unknown{unknown}" if one["type"] == "extra_forbidden" else one["msg"]
                wrong.append(f"options.{name}: {what}, got {one['input']!r:.100}")
            raise ValueError("; ".join(wrong)) from None
