"""Deadlines of simulated programs, with the gateway's own goals, budgets and forecasts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from weft_engine.wire import CallReport
from weft_gateway.calls.budgets import Budgets
from weft_gateway.calls.call import Call, Hooks, Placed
from weft_gateway.engine.endpoints import BY_PATH
from weft_gateway.model import Decision, Opened, Outcome, Program
from weft_gateway.model.slo import Ask, CallBudget, Goal, Scope
from weft_gateway.programs.identity import MAIN_THREAD, Identity

from weft_bench.workloads.schema import Part

MODEL: Final = "simulated"
_CHAT: Final = BY_PATH["/v1/chat/completions"]


class Targets:
    """Gives each call of a program with a deadline its budget, as `weft_gateway.calls` does.

    deadlines: seconds from a program's first call, by program; programs without one have no budget.
    clock: the instant, seconds.
    """

    def __init__(self, deadlines: Mapping[str, float], clock: Callable[[], float]) -> None:
        self._asks = {
            program: Ask(Goal("", Scope.PROGRAM, deadline_s), explicit=True)
            for program, deadline_s in deadlines.items()
        }
        self._budgets = Budgets(clock)
        self._calls: dict[str, Call] = {}

    def ask(self, program: str) -> Ask | None:
        """Return what the calls of a program ask for."""
        return self._asks.get(program)

    def opened(
        self, call: str, opened: Opened, decision: Decision, parts: Sequence[Part]
    ) -> CallBudget | None:
        """Follow a call that has opened. Returns its budget, None without a deadline. parts: its
        prompt.
        """
        program = opened.program
        if not program.goal.target_s:
            return None
        prompt = sum(part.tokens for part in parts)
        sent = Call(call, _CHAT, [], b"", 0.0, Hooks())
        sent.identity = Identity(program.key, MAIN_THREAD, "", "session", False)
        sent.body = body_of(parts)
        sent.placed = Placed(opened.replica, decision.sticky, decision, prompt, "", None)
        sent.model, sent.replica, sent.program = MODEL, opened.replica, program
        if program.calls_closed:
            sent.expected_s = program.service_s / program.calls_closed
        self._calls[call] = sent
        self._budgets.opened(sent)
        return self._budgets.of(sent)

    def closed(self, report: CallReport, outcome: Outcome) -> None:
        """Learn from a call that was answered."""
        call = self._calls.pop(report.call, None)
        if call is not None:
            call.report, call.outcome = report, outcome
            self._budgets.closed(call)

    def ended(self, program: Program) -> None:
        """Learn from a program that has ended."""
        self._budgets.ended(program.key)
        self._budgets.forget(program.key)


def body_of(parts: Sequence[Part]) -> dict[str, Any]:
    """Return the part of a request that the gateway recognises its stage by: the system prompt. The
    gateway knows no answer's length.
    """
    head = parts[0] if parts else Part("", 0)
    role = "system" if head.kind == "system" else "user"
    return {"messages": [{"role": role, "content": head.name}]}
