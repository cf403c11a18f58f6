"""Deadlines and predicted costs of simulated calls, with the gateway's own goals, budgets and
forecasts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from weft_engine.wire import CallReport
from weft_gateway.calls.budgets import Budgets
from weft_gateway.calls.call import Call, Hooks, Placed
from weft_gateway.calls.features.feasible import wait_s
from weft_gateway.calls.outlook import Outlook
from weft_gateway.engine.described import engine_costs
from weft_gateway.engine.endpoints import BY_PATH
from weft_gateway.model import (
    Decision,
    Opened,
    Outcome,
    Program,
    ProgramKey,
    ReplicaCost,
    RouteRequest,
)
from weft_gateway.model.slo import Ask, Goal, Scope
from weft_gateway.policies.feasible import can_be_met
from weft_gateway.programs.identity import MAIN_THREAD, Identity
from weft_gateway.programs.memory import MemoryTable

from weft_bench.workloads.schema import Part

__all__ = ["MODEL", "Call", "Targets", "in_microseconds"]

MODEL: Final = "simulated"
_CHAT: Final = BY_PATH["/v1/chat/completions"]
_US: Final = 1e6


class Targets:
    """Predicts calls and gives those of a program with a deadline their budget, as
    `weft_gateway.calls` does.

    deadlines: seconds from a program's first call, by program. clock: the instant, seconds. every:
    learn from calls without a budget.
    """

    def __init__(
        self,
        table: MemoryTable,
        deadlines: Mapping[str, float],
        clock: Callable[[], float],
        *,
        every: bool,
    ) -> None:
        self._table = table
        self._deadlines = deadlines
        self._every = every
        self._budgets = Budgets(clock=clock)
        self._outlook = Outlook(self._budgets, table)
        self._calls: dict[str, Call] = {}

    def engine(self, replica: str, state: Mapping[str, Any]) -> None:
        """Learn an engine's step costs from its answer to `GET /weft/state`."""
        self._budgets.costs.set_engine(replica, engine_costs({"engines": [state]}))

    def call(
        self,
        key: ProgramKey,
        call: str,
        parts: Sequence[Part],
    ) -> Call:
        """Return a call that arrives. parts: its prompt."""
        found = Call(call, _CHAT, [], b"", 0.0, Hooks())
        found.identity = Identity(key, MAIN_THREAD, "", "session", False)
        found.body, found.model = body_of(parts), MODEL
        if key.program in self._deadlines:
            goal = Goal("", Scope.PROGRAM, self._deadlines[key.program])
            found.ask = Ask(goal, explicit=True)
        return found

    def predicted(self, call: Call, request: RouteRequest) -> RouteRequest:
        """Return the request with the call's costs and budget, as far as they are known."""
        return self._outlook.predicted(call, request)

    def opened(self, call: Call, opened: Opened, decision: Decision, prompt: int) -> None:
        """Follow a call that has opened, and set its budget."""
        program = opened.program
        call.placed = Placed(opened.replica, decision.sticky, decision, prompt, "", None)
        call.replica, call.program = opened.replica, program
        if program.calls_closed:
            call.expected_s = program.service_s / program.calls_closed
        self._calls[call.id] = call
        if program.goal.target_s:
            self._budgets.opened(call)
            call.budget = self._budgets.of(call)

    def infeasible(self, call: Call) -> bool:
        """Whether the gateway refuses the program of this first call, if its class says so."""
        if call.budget is None:
            return False
        found = self._budgets.own(call, call.budget)
        return not can_be_met(found, wait_s(call))

    def refused(self, call: Call) -> None:
        """Forget a program whose first call was refused."""
        del self._calls[call.id]
        self._budgets.forget(call.key)

    def closed(self, report: CallReport, outcome: Outcome) -> None:
        """Learn from a call that was answered."""
        call = self._calls.pop(report.call, None)
        if call is not None and (self._every or call.budget is not None):
            call.outcome, call.report = outcome, report
            self._budgets.closed(call, self._table.in_flight().get(call.replica, 1))

    def ended(self, program: Program) -> None:
        """Learn from a program that has ended."""
        self._budgets.ended(program.key)
        self._budgets.forget(program.key)


def in_microseconds(costs: Mapping[str, ReplicaCost] | None) -> dict[str, int]:
    """Return predicted costs as the process table sums them."""
    return {name: int(cost.cost_s * _US) for name, cost in (costs or {}).items()}


def body_of(parts: Sequence[Part]) -> dict[str, Any]:
    """Return the part of a request that the gateway recognises its stage by: the system prompt. The
    gateway does not know the answer's length.
    """
    head = parts[0] if parts else Part("", 0)
    role = "system" if head.kind == "system" else "user"
    return {"messages": [{"role": role, "content": head.name}]}
