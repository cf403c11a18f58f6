"""Targets of programs: the goal of each call, and whether programs, turns and calls met theirs."""

from __future__ import annotations

from dataclasses import dataclass
from time import time

from weft_gateway.calls.budgets import Budgets
from weft_gateway.calls.call import Call
from weft_gateway.calls.observers import CallObserver
from weft_gateway.model import Outcome, Program
from weft_gateway.model.slo import NO_GOAL, Scope, Slos
from weft_gateway.overlap.answers import MAX_ANSWER_BYTES, parse_answer
from weft_gateway.policies.goals import asked_goal, begins_turn, calls_tools
from weft_gateway.telemetry.metrics import Metrics


@dataclass(slots=True, eq=False)
class SloObserver(CallObserver):
    """Sets the goals of calls, and counts the units that have ended: programs, turns or calls, by
    the scope of the class.
    """

    slos: Slos
    budgets: Budgets
    metrics: Metrics
    _turns: bool = False

    def __post_init__(self) -> None:
        self._turns = any(one.scope is Scope.TURN for one in self.slos.classes.values())

    def arrived(self, call: Call) -> None:
        """Set the goal that the call asks for."""
        hints = call.hints
        if self.slos.classes or hints.slo is not None or hints.program_deadline_s is not None:
            # A sub-agent's first message is a user's, too.
            main = call.endpoint.is_text and not call.identity.parent
            turn = self._turns and main and begins_turn(call.body)
            call.ask, call.hints = asked_goal(self.slos, call.caller.tenant, hints, turn)

    def opened(self, call: Call) -> None:
        """Follow the program's path."""
        goal = call.program.goal
        if goal is NO_GOAL or not goal.target_s or goal.scope is Scope.CALL:
            return
        if self.budgets.opened(call):
            self.metrics.slo_programs.labels(goal.slo, "unended").inc()

    def head(self, call: Call) -> None:
        """Record a stream that may end a turn."""
        if call.is_stream and _ends_turns(call):
            call.record(MAX_ANSWER_BYTES)

    def closed(self, call: Call) -> None:
        """Count the call if it ends a unit."""
        found = call.budget
        if found is None or call.superseded:
            return
        if call.outcome is Outcome.REFUSED:
            self.metrics.slo_programs.labels(found.slo, "refused").inc()
            self.budgets.forget(call.key)
            return
        self.metrics.slo_slack.labels(found.slo).observe(found.budget_s - found.cost_s)
        good = call.outcome is Outcome.OK and call.good
        if found.scope is Scope.CALL:
            self._count(found.slo, found.target_s, time(), ended=good)
        elif call.identity.ephemeral:
            self._count(found.slo, found.target_s, time(), ended=good)
            self.budgets.ended(call.key)
            self.budgets.forget(call.key)
        elif good and _ends_turns(call):
            answer = parse_answer(call.answer(), call.is_stream)
            if answer and not calls_tools(answer) and self.budgets.ended(call.key):
                self._count(found.slo, found.target_s, time(), ended=True)

    def program_ended(self, program: Program | None, *, idle: bool = False) -> None:
        """Count a program that has ended. idle: it had no call for too long."""
        goal = NO_GOAL if program is None else program.goal
        if program is None or not goal.target_s or goal.scope is Scope.CALL:
            return
        if self.budgets.ended(program.key):
            ended = goal.scope is Scope.PROGRAM and not idle
            self._count(goal.slo, goal.target_s, program.last_completion_s, ended=ended)
        self.budgets.forget(program.key)

    def _count(self, slo: str, target_s: float, end_s: float, *, ended: bool) -> None:
        outcome = "late" if end_s > target_s else "met" if ended else "unended"
        self.metrics.slo_programs.labels(slo, outcome).inc()


def _ends_turns(call: Call) -> bool:
    found = call.budget
    return found is not None and found.scope is Scope.TURN and call.endpoint.is_text
