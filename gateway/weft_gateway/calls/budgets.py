"""Budgets of calls, measured when a call is sent, and what the gateway learns for them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from time import perf_counter, time
from typing import Any, Final

from weft_gateway.calls.call import PREFILL, Call
from weft_gateway.calls.kinds import stage_of
from weft_gateway.model import Outcome, Program, ProgramKey
from weft_gateway.model.slo import NO_GOAL, CallBudget, Goal, Scope
from weft_gateway.policies.budget import budget, is_late
from weft_gateway.policies.costs import Costs, Shape
from weft_gateway.policies.forecast import PathLengths
from weft_gateway.policies.lateness import Cause, Overruns
from weft_gateway.programs.rules import fresh, pursued

_MAX_UNITS: Final = 16_384
_LIMITS: Final = ("max_completion_tokens", "max_tokens", "max_output_tokens")


@dataclass(slots=True)
class Unit:
    """A program or a turn in progress. kind: of its programs. path: the kind with its scope and
    model. position: of its last call on the path, from 1. done: its end is known. left_s: the end
    of its last call.
    """

    kind: str
    path: str
    begun_s: float
    position: int
    done: bool = False
    overruns: Overruns = field(default_factory=Overruns)
    left_s: float = 0.0


class Budgets:
    """Knows the units in progress through this gateway, and learns from ended calls. clock: Unix
    time, seconds.
    """

    def __init__(self, clock: Callable[[], float] = lambda: time()) -> None:
        self._clock = clock
        self._units: OrderedDict[ProgramKey, Unit] = OrderedDict()
        self._lengths = PathLengths()
        self.costs = Costs()

    def opened(self, call: Call) -> bool:
        """Follow the path of a program with a target. Call it when a call has opened. Returns
        whether the call begins a unit although the one before has not ended.
        """
        goal = call.program.goal
        position = _position(call.program, goal)
        unit = self._units.get(call.key)
        given_up = False
        if unit is None or unit.begun_s != goal.begun_s:
            if unit is not None and not unit.done:
                given_up = True
                self._lengths.ended(unit.path, unit.position)
            kind = _stage(call)
            path = f"{goal.scope.value}\n{call.model}\n{kind}"
            unit = self._units[call.key] = Unit(kind, path, goal.begun_s, position)
            if len(self._units) > _MAX_UNITS:
                self._units.popitem(last=False)
        elif unit.left_s and len(call.program.threads) <= 1:
            unit.overruns.client_s += max(self._clock() - unit.left_s, 0.0)
            unit.left_s = 0.0
        for passed in range(unit.position, position):
            self._lengths.went_on(unit.path, passed)
        unit.position = max(unit.position, position)
        self._units.move_to_end(call.key)
        return given_up

    def of(self, call: Call) -> CallBudget | None:
        """Return the budget of a call that is sent now, None without a target. A prefill has none:
        it is advance work.
        """
        assert call.placed is not None
        return self._budget(call, call.program, call.program.goal, call.placed.prompt_tokens)

    def ahead(self, call: Call, program: Program | None, prompt: int) -> CallBudget | None:
        """Return the budget of a call that is placed now. program: the local view of its row, None
        for a new one. prompt: tokens.
        """
        asks = call.ask is not None and call.ask.goal is not NO_GOAL
        known = program is not None and program.goal is not NO_GOAL
        if not (asks or known or call.hints.deadline_s is not None):
            return None
        now_s = self._clock()
        row = program or fresh(call.key, now_s, call.identity.ephemeral)
        return self._budget(call, row, pursued(row, call.ask, now_s), prompt)

    def own(self, call: Call, found: CallBudget) -> CallBudget:
        """Return a budget without forecasts of other kinds of programs: the cost is 0 if calls of
        this stage are unknown, and no later call is expected if units of this kind are.
        """
        if not self.costs.knows(found.kind):
            return replace(found, cost_s=0.0)
        unit = self._units.get(call.key)
        known = unit is not None and self._lengths.knows(unit.path)
        if known or found.scope is Scope.CALL:
            return found
        return replace(found, whole_s=found.cost_s, whole_p90_s=found.p90_s or found.cost_s)

    def expected(self, call: Call, prompt: int) -> Shape | None:
        """Return a call as expected; None if nothing is known yet. prompt: tokens."""
        return self.costs.shape(self._kind(call), prompt, _max_tokens(call.body))

    def _budget(self, call: Call, program: Program, goal: Goal, prompt: int) -> CallBudget | None:
        if call.endpoint is PREFILL:
            return None
        own_s, now_s = call.hints.deadline_s, self._clock()
        position = _position(program, goal)
        if goal.scope is Scope.CALL and goal.deadline_s:
            own_s = goal.deadline_s if own_s is None else own_s
        elif goal.target_s:
            found = self._of(call, program, goal, goal.target_s, now_s, position, prompt)
            if own_s is not None:
                part_s = min(found.budget_s, max(0.0, own_s - _elapsed(call)))
                return replace(found, budget_s=part_s)
            return found
        if own_s is None:
            return None
        target_s = now_s + own_s - _elapsed(call)
        own = Goal(goal.slo, Scope.CALL, own_s)
        return self._of(call, program, own, target_s, now_s, position, prompt)

    def closed(self, call: Call, beside: int = 1) -> None:
        """Learn the cost of an answered call. An engine without a report is timed from the sending
        to the last byte, if the answer has a usage. beside: open calls on its replica.
        """
        report, usage = call.report, call.usage
        if call.outcome is not Outcome.OK or not call.endpoint.is_text or usage is None:
            return
        prompt, cached, output = usage.prompt_tokens, usage.cached_tokens, usage.output_tokens
        service_s = _elapsed(call) - call.sent_s if report is None else report.service_s
        if prompt and service_s > 0:
            found, replica = call.budget, call.replica
            kind, fit_s = (self._kind(call), 0.0) if found is None else (found.kind, found.fit_s)
            self.costs.learn(
                call.model, replica, kind, prompt, cached, output, service_s, beside, fit_s
            )
            unit = self._units.get(call.key)
            if found is not None and found.scope is not Scope.CALL and unit is not None:
                position = _position(call.program, call.program.goal)
                self._lengths.served(unit.path, position, service_s)

    def follow(self, call: Call) -> None:
        """Record a closed call with a budget for the end of its unit: where its time went."""
        found, unit = call.budget, self._units.get(call.key)
        if found is None or unit is None or found.scope is Scope.CALL:
            return
        position = _position(call.program, call.program.goal)
        unit.left_s = self._clock()
        if position == 1:
            unit.overruns.late = found.late
        if call.report is not None:
            count_overruns(call, unit.overruns)

    def ended(self, key: ProgramKey) -> Unit | None:
        """Record the end of a program's unit. Returns the unit if it was in progress here."""
        unit = self._units.get(key)
        if unit is None or unit.done:
            return None
        unit.done = True
        self._lengths.ended(unit.path, unit.position)
        return unit

    def forget(self, key: ProgramKey) -> None:
        """Forget a program that has ended."""
        self._units.pop(key, None)

    def _kind(self, call: Call) -> str:
        """Return the names of a call's model, kind and stage."""
        unit, stage = self._units.get(call.key), _stage(call)
        kind = stage if unit is None else unit.kind
        return f"{call.model}\n{kind}\n{stage}"

    def _of(
        self,
        call: Call,
        program: Program,
        goal: Goal,
        target_s: float,
        now_s: float,
        position: int,
        prompt: int,
    ) -> CallBudget:
        unit = self._units.get(call.key) if goal.scope is not Scope.CALL else None
        stage = _stage(call)
        kinds = f"{call.model}\n{stage if unit is None else unit.kind}"
        found = self.costs.predict(call.model, f"{kinds}\n{stage}", prompt, _max_tokens(call.body))
        cost_s = found.cost_s or call.expected_s or 0.0
        later_s = found.later_s or cost_s
        remaining = p90 = 0
        rest_s = rest_p90_s = 0.0
        if goal.scope is not Scope.CALL:
            # A unit's calls may use several models. Its path is learned under that of the first.
            known = unit is not None and unit.begun_s == goal.begun_s
            path = unit.path if unit is not None and known else f"{goal.scope.value}\n{kinds}"
            remaining, p90, rest_s, rest_p90_s = self._lengths.ahead(path, position)
        left_s = target_s - now_s
        path_s, late = cost_s + remaining * later_s, is_late(left_s, cost_s, remaining, later_s)
        return CallBudget(
            goal.slo,
            goal.scope,
            goal.deadline_s,
            target_s,
            left_s,
            budget(left_s, cost_s, remaining, later_s),
            cost_s,
            found.prefill_s,
            found.answer_s,
            remaining,
            late,
            path_s,
            cost_s + (rest_s or remaining * later_s),
            (found.p90_s or cost_s) + (rest_p90_s or p90 * later_s),
            found.p90_s,
            found.fit_s,
            found.tokens,
            found.tokens_p90,
            p90,
            f"{kinds}\n{stage}",
            _cause(unit, goal, position, path_s - left_s) if late else None,
        )


def count_overruns(call: Call, overruns: Overruns) -> None:
    """Add a closed call to the overruns of its unit. It needs a budget and a report."""
    assert call.budget is not None
    assert call.report is not None
    first_s = call.first_byte_s - call.sent_s if call.is_stream else None
    overruns.waiting_s += call.memory_wait_s
    overruns.add(call.budget, call.report, first_s, _elapsed(call) - call.sent_s)


def _elapsed(call: Call) -> float:
    return perf_counter() - call.begun


def _cause(unit: Unit | None, goal: Goal, position: int, late_s: float) -> Cause:
    """Return why the path of the goal's unit does not fit any more. late_s: what it is too long."""
    if goal.scope is Scope.CALL or position == 1 or unit is None or unit.begun_s != goal.begun_s:
        return Cause.WORK
    return unit.overruns.cause(late_s)


def _position(program: Program, goal: Goal) -> int:
    """Return the position of a program's next call on its unit's path, from 1."""
    return program.path_calls - goal.begun_calls + 1


def _max_tokens(body: dict[str, Any]) -> int | None:
    for name in _LIMITS:
        value = body.get(name)
        if isinstance(value, int) and value > 0:
            return value
    return None


def _stage(call: Call) -> str:
    """Return the stage that the call's prompt tells."""
    if not call.stage:
        call.stage = stage_of(call.body)
    return call.stage
