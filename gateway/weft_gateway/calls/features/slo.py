"""Targets of programs: the goal of each call, and whether programs, turns and calls met theirs."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable
from dataclasses import dataclass, field
from time import time
from typing import Final

from weft_gateway.calls.budgets import Budgets, count_overruns
from weft_gateway.calls.call import UNIDENTIFIED, Call
from weft_gateway.calls.observers import CallObserver
from weft_gateway.model import Outcome, Program, ProgramKey
from weft_gateway.model.slo import NO_GOAL, CallBudget, Goal, Scope, Slos
from weft_gateway.overlap.answers import MAX_ANSWER_BYTES, parse_answer
from weft_gateway.policies.goals import asked_goal, begins_turn, calls_tools, refers_to_program
from weft_gateway.policies.lateness import Overruns
from weft_gateway.programs.rules import asked
from weft_gateway.programs.table import ProcessTable
from weft_gateway.telemetry.slo_tally import SloTally

# The clients of OpenAI and Anthropic send it: how often they have sent this request before.
_RETRY: Final = b"x-stainless-retry-count"
_MAX_REFUSED: Final = 16_384


@dataclass(slots=True, eq=False)
class SloObserver(CallObserver):
    """Sets the goals of calls, and counts the units that have ended: programs, turns or calls, by
    the scope of the class.
    """

    slos: Slos
    table: ProcessTable
    budgets: Budgets
    tally: SloTally
    _turns: bool = False
    # Programs whose last call was refused: their retries are no new units.
    _refused: OrderedDict[ProgramKey, None] = field(default_factory=OrderedDict, init=False)

    def __post_init__(self) -> None:
        self._turns = any(one.scope is Scope.TURN for one in self.slos.classes.values())

    def arrived(self, call: Call) -> Awaitable[None] | None:
        """Set the goal that the call asks for."""
        if call.plan is not None:
            call.ask = call.plan.ask
            return None
        hints = call.hints
        if self.slos.classes or hints.slo is not None or hints.program_deadline_s is not None:
            if refers_to_program(self.slos, call.caller.tenant, hints):
                return self._set_later(call)
            self._set(call, NO_GOAL)
        return None

    async def _set_later(self, call: Call) -> None:
        """Set the goal of a call that depends on the class of its program."""
        program = await self.table.get(call.identity.key)
        self._set(call, NO_GOAL if program is None else program.goal)

    def _set(self, call: Call, present: Goal) -> None:
        # A sub-agent's first message is a user's, too.
        main = call.endpoint.is_text and not call.identity.parent
        turn = self._turns and main and begins_turn(call.body)
        tenant = call.caller.tenant
        call.ask, call.hints = asked_goal(self.slos, tenant, call.hints, turn, present)

    def opened(self, call: Call) -> None:
        """Follow the program's path."""
        goal = call.program.goal
        if goal is NO_GOAL or not goal.target_s or goal.scope is Scope.CALL:
            return
        if self.budgets.opened(call):
            self.tally.count(goal.slo, call.key.tenant, "unended")

    def streams(self, call: Call) -> None:
        """Record a stream that may end a turn."""
        if _ends_turns(call):
            call.record(MAX_ANSWER_BYTES)

    def closed(self, call: Call) -> None:
        """Count the call if it ends a unit."""
        if call.report is not None:
            self.tally.served(call.key.tenant, call.report.service_s)
        found = call.budget
        if found is None or call.superseded:
            return
        if call.outcome is Outcome.REFUSED:
            if call.key not in self._refused and not _is_retry(call):
                self.tally.count(found.slo, call.key.tenant, "refused")
            if not call.identity.ephemeral:
                self._refused[call.key] = None
                if len(self._refused) > _MAX_REFUSED:
                    self._refused.popitem(last=False)
            self.budgets.forget(call.key)
            return
        self._refused.pop(call.key, None)
        self.budgets.follow(call)
        self.tally.slack(found.slo, found.budget_s - found.cost_s)
        good = call.outcome is Outcome.OK and call.good
        if found.scope is Scope.CALL:
            self._call_ended(call, found, good)
        elif call.identity.ephemeral:
            self._ended(call.program, found.target_s, time(), good)
            self.budgets.forget(call.key)
        elif good and _ends_turns(call):
            answer = parse_answer(call.answer(), call.is_stream)
            if answer and not calls_tools(answer):
                self._ended(call.program, found.target_s, time(), True)

    def ended(self, call: Call) -> None:
        """Count a unit of one call that the gateway refused, at its first attempt. The calls of
        other units are usually repeated.
        """
        error = call.error
        if error is None or call.budget is not None or call.identity is UNIDENTIFIED:
            return
        if _is_retry(call):
            return
        if not (error.status == 429 or error.status >= 500):
            return
        program = self.table.peek(call.identity.key)
        goal = NO_GOAL if program is None else program.goal
        ask = call.ask or asked_goal(self.slos, call.caller.tenant, call.hints, False, goal)[0]
        goal = asked(goal, ask)
        single = goal.scope is Scope.CALL or call.identity.ephemeral
        if (goal.deadline_s and single) or (not goal.deadline_s and call.hints.deadline_s):
            self.tally.count(goal.slo, call.key.tenant, "refused")

    def program_ended(self, program: Program | None, *, idle: bool = False) -> None:
        """Count a program that has ended. idle: it had no call for too long."""
        if program is None:
            return
        self._refused.pop(program.key, None)
        goal = program.goal
        if not goal.target_s or goal.scope is Scope.CALL:
            return
        done = goal.scope is Scope.PROGRAM and not idle
        self._ended(program, goal.target_s, program.last_completion_s, done)
        self.budgets.forget(program.key)

    def _ended(self, program: Program, target_s: float, end_s: float, done: bool) -> None:
        """Count the program or turn in progress. done: it was not given up."""
        unit = self.budgets.ended(program.key)
        if unit is None:
            return
        self._count(program.goal.slo, program.key.tenant, end_s - target_s, unit.overruns, done)

    def _call_ended(self, call: Call, found: CallBudget, good: bool) -> None:
        overruns, late_s = Overruns(found.late), time() - found.target_s
        if late_s > 0 and call.report is not None:
            count_overruns(call, overruns)
        self._count(found.slo, call.key.tenant, late_s, overruns, good)

    def _count(self, slo: str, tenant: str, late_s: float, overruns: Overruns, done: bool) -> None:
        if late_s > 0:
            self.tally.count(slo, tenant, "late", overruns.cause(late_s))
        else:
            self.tally.count(slo, tenant, "met" if done else "unended")


def _ends_turns(call: Call) -> bool:
    found = call.budget
    return found is not None and found.scope is Scope.TURN and call.endpoint.is_text


def _is_retry(call: Call) -> bool:
    """Whether the client says that it has sent the call before."""
    return any(name == _RETRY and value.strip(b"0").isdigit() for name, value in call.headers)
