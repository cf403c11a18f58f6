"""Budgets as operators and clients write them: in the keys file, in the body of a session and in
the header `x-weft-budget`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, Field

from weft_gateway.model.limits import Budget
from weft_gateway.model.spending import (
    ALLOWANCE_FIELDS,
    NANO,
    NO_ALLOWANCE,
    Allowance,
    Amounts,
    Changes,
    changed,
)

# A double holds sums of such numbers exactly.
_Count = Annotated[int, Field(ge=0, le=10**15)]
_Seconds = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
NEEDS_PRICES: Final = "needs a price file (WEFT_PRICES_FILE)"


class BudgetEntry(BaseModel, extra="forbid", strict=True):
    """A budget. Missing and null members are not limited."""

    tokens: _Count | None = Field(None, description="prompt and output tokens")
    input_tokens: _Count | None = Field(None, description="prompt tokens without cached ones")
    cached_tokens: _Count | None = Field(None, description="prompt tokens from the prefix cache")
    output_tokens: _Count | None = Field(None, description="output tokens")
    calls: _Count | None = Field(None, description="calls")
    engine_s: _Seconds | None = Field(None, description="engine time, seconds")
    wall_s: _Seconds | None = Field(None, description="time since the first call, seconds")
    dollars: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] | None = Field(
        None, description="money, by the price file"
    )
    at_limit: Literal["refuse", "warn", "hold"] | None = Field(
        None,
        description="what happens to the next call at a limit: 429 (the default), only a header "
        "and an event, or a wait until the budget is raised",
    )

    def changes(self) -> Changes:
        """Return the members that are set."""
        found: dict[str, Any] = self.model_dump(exclude_unset=True, include=_MEMBERS)
        if "dollars" in found:
            dollars = found.pop("dollars")
            found["nanodollars"] = None if dollars is None else round(dollars * NANO)
        return found

    def allowance(self) -> Allowance:
        """Return the budget."""
        return changed(NO_ALLOWANCE, self.changes())


_MEMBERS: Final = set(BudgetEntry.model_fields)
# Changes that remove a budget.
NO_BUDGET: Final[Changes] = dict.fromkeys(ALLOWANCE_FIELDS)


class PeriodEntry(BudgetEntry):
    """The budget of a key or a class."""

    per: Literal["day", "month"] | None = Field(
        None, description="period after which it is full again, UTC; missing: never"
    )

    @property
    def budget(self) -> Budget:
        """The budget for the gateway."""
        return Budget(self.allowance(), self.per or "")


def since_s(per: str, now_s: float) -> float:
    """Return the begin of a period, Unix time; 0 without one."""
    if not per:
        return 0.0
    day = datetime.fromtimestamp(now_s, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return (day if per == "day" else day.replace(day=1)).timestamp()


def written(amounts: Amounts) -> dict[str, float]:
    """Return amounts as clients see them."""
    found: dict[str, float] = amounts._asdict()
    found["dollars"] = found.pop("nanodollars") / NANO
    return found


def written_limits(allowance: Allowance) -> dict[str, float]:
    """Return the limits that are set, as clients see them."""
    found = allowance.limits
    if "nanodollars" in found:
        found["dollars"] = found.pop("nanodollars") / NANO
    return found
