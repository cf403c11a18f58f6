"""Budgets that clients ask for in a header, and the class whose budget pays."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Final

import orjson
from pydantic import ValidationError
from weft_run import yaml_errors

from weft_gateway import errors
from weft_gateway.allowances import NEEDS_PRICES, BudgetEntry
from weft_gateway.calls.call import Call
from weft_gateway.calls.observers import CallObserver
from weft_gateway.calls.spending import Balance
from weft_gateway.model.spending import Allowance
from weft_gateway.programs.table import ProcessTable
from weft_gateway.telemetry.listeners import Listeners
from weft_gateway.telemetry.metrics import Metrics
from weft_gateway.tenants import Tenants

HEADER: Final = b"x-weft-budget"


@dataclass(slots=True, eq=False)
class BudgetObserver(CallObserver):
    """Reads the budgets of calls, and reports the calls that meet a limit."""

    tenants: Tenants
    table: ProcessTable
    metrics: Metrics
    listeners: Listeners
    priced: bool

    def arrived(self, call: Call) -> Awaitable[None] | None:
        """Read the header. Raises ApiError 400."""
        for name, value in call.headers:
            if name == HEADER:
                call.allowance = asked(value, self.priced)
        if self.tenants.class_budgets and self.table.peek(call.identity.key) is None:
            return self._look(call)
        return None

    async def _look(self, call: Call) -> None:
        """Learn the class of a program that another gateway may know."""
        if not call.identity.ephemeral:
            await self.table.get(call.identity.key)

    def told(self, call: Call, balance: Balance, then: str) -> None:
        """Report a call at a limit."""
        self.metrics.budget_limits.labels(balance.of, then).inc()
        event = {
            "type": "weft.budget",
            "budget": balance.of,
            "then": then,
            "spent": balance.spent(),
            "left": balance.left(),
            "request_id": call.request_id.decode("latin-1"),
        }
        self.listeners.publish(call.identity.key, event)


def asked(value: bytes, priced: bool) -> Allowance:
    """Return the budget of a header. Raises ApiError 400 with the path of the wrong member."""
    name = HEADER.decode()
    try:
        given = orjson.loads(value)
    except orjson.JSONDecodeError:
        raise errors.invalid_member((name,), "must be a JSON object") from None
    try:
        entry = BudgetEntry.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        what, path = yaml_errors.reason(first, "an object"), first["loc"]
        if first["type"] == "extra_forbidden":
            what += yaml_errors.nearest(str(path[0]), BudgetEntry.model_fields)
        raise errors.invalid_member((name, *path), what) from None
    if entry.dollars is not None and not priced:
        raise errors.invalid_member((name, "dollars"), NEEDS_PRICES)
    return entry.allowance()
