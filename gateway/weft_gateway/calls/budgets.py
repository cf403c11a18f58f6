"""Budgets of calls, measured when a call is sent, and what the gateway learns for them."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from hashlib import blake2b
from time import perf_counter, time
from typing import Any, Final

from weft_gateway.calls.call import PREFILL, Call
from weft_gateway.calls.usage import usage_of
from weft_gateway.model import Outcome, Program, ProgramKey
from weft_gateway.model.slo import NO_GOAL, CallBudget, Goal, Scope, Slos
from weft_gateway.policies.budget import budget, is_late
from weft_gateway.policies.costs import Costs, Shape
from weft_gateway.policies.forecast import ALL, PathLengths
from weft_gateway.programs.rules import fresh, pursued

_MAX_UNITS: Final = 16_384
_LIMITS: Final = ("max_completion_tokens", "max_tokens", "max_output_tokens")


@dataclass(slots=True)
class _Unit:
    """A program or a turn in progress. kind: of its first call. position: of its last call on the
    path, from 1. done: its end is known.
    """

    kind: str
    begun_s: float
    position: int
    done: bool = False


class Budgets:
    """Knows the units in progress through this gateway, and learns from ended calls. slos: the
    classes, for their weights.
    """

    def __init__(self, slos: Slos | None = None) -> None:
        self._classes = {} if slos is None else slos.classes
        self._units: OrderedDict[ProgramKey, _Unit] = OrderedDict()
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
                self._lengths.ended(unit.kind, unit.position)
            unit = self._units[call.key] = _Unit(_kind(call, goal), goal.begun_s, position)
            if len(self._units) > _MAX_UNITS:
                self._units.popitem(last=False)
        for passed in range(unit.position, position):
            self._lengths.went_on(unit.kind, passed)
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
        row = program or fresh(call.key, time(), call.identity.ephemeral)
        return self._budget(call, row, pursued(row, call.ask, time()), prompt)

    def expected(self, call: Call, prompt: int) -> Shape | None:
        """Return a call as expected; None if nothing is known yet. prompt: tokens."""
        return self.costs.shape(self._kind(call), prompt, _max_tokens(call.body))

    def _budget(self, call: Call, program: Program, goal: Goal, prompt: int) -> CallBudget | None:
        if call.endpoint is PREFILL:
            return None
        own_s, now_s, position = call.hints.deadline_s, time(), _position(program, goal)
        if goal.scope is Scope.CALL and goal.deadline_s:
            own_s = goal.deadline_s if own_s is None else own_s
        elif goal.target_s:
            found = self._of(call, goal, goal.target_s, now_s, position, prompt)
            if own_s is not None:
                part_s = min(found.budget_s, max(0.0, own_s - _elapsed(call)))
                return replace(found, budget_s=part_s)
            return found
        if own_s is None:
            return None
        target_s = now_s + own_s - _elapsed(call)
        return self._of(call, Goal(goal.slo, Scope.CALL, own_s), target_s, now_s, position, prompt)

    def closed(self, call: Call, beside: int = 1) -> None:
        """Learn the cost of an answered call. An engine without a report is timed from the sending
        to the last byte, if the answer has a usage. beside: open calls on its replica.
        """
        report = call.report
        if call.outcome is not Outcome.OK or not call.endpoint.is_text:
            return
        if report is not None:
            prompt, cached, output = (
                report.prompt_tokens,
                report.cached_tokens,
                report.output_tokens,
            )
            service_s = report.service_s
        else:
            (prompt, output), cached = usage_of(call, call.claim), 0
            service_s = _elapsed(call) - call.overhead_s - call.memory_wait_s
        if prompt and service_s > 0:
            model, kind = call.model, self._kind(call)
            self.costs.learn(model, call.replica, kind, prompt, cached, output, service_s, beside)

    def ended(self, key: ProgramKey) -> bool:
        """Record the end of a program's unit. Returns whether it was in progress here."""
        unit = self._units.get(key)
        if unit is None or unit.done:
            return False
        unit.done = True
        self._lengths.ended(unit.kind, unit.position)
        return True

    def forget(self, key: ProgramKey) -> None:
        """Forget a program that has ended."""
        self._units.pop(key, None)

    def _kind(self, call: Call) -> str:
        unit = self._units.get(call.key)
        return ALL if unit is None else unit.kind

    def _of(
        self, call: Call, goal: Goal, target_s: float, now_s: float, position: int, prompt: int
    ) -> CallBudget:
        kind, remaining = self._kind(call), 0
        if goal.scope is not Scope.CALL:
            remaining = self._lengths.remaining(kind, position)
        found = self.costs.predict(call.model, kind, prompt, _max_tokens(call.body))
        cost_s = found.cost_s or call.expected_s or 0.0
        later_s = found.later_s or cost_s
        left_s = target_s - now_s
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
            is_late(left_s, cost_s, remaining, later_s),
            cost_s + remaining * later_s,
            self._classes[goal.slo].weight if goal.slo in self._classes else 1.0,
        )


def _elapsed(call: Call) -> float:
    return perf_counter() - call.begun


def _position(program: Program, goal: Goal) -> int:
    """Return the position of a program's next call on its unit's path, from 1."""
    return program.path_calls - goal.begun_calls + 1


def _max_tokens(body: dict[str, Any]) -> int | None:
    for name in _LIMITS:
        value = body.get(name)
        if isinstance(value, int) and value > 0:
            return value
    return None


def _kind(call: Call, goal: Goal) -> str:
    """Return the kind of a unit: its scope, its model and its first stage, which is a digest of the
    leading system prompt and the names of the tools.
    """
    body = call.body
    stage = blake2b(digest_size=8)
    messages = body.get("messages")
    first = messages[0] if isinstance(messages, list) and messages else None
    if isinstance(first, dict) and first.get("role") in ("system", "developer"):
        stage.update(repr(first.get("content")).encode("utf-8", "surrogatepass"))
    for name in ("system", "instructions"):
        stage.update(repr(body.get(name)).encode("utf-8", "surrogatepass"))
    tools = body.get("tools")
    for tool in tools if isinstance(tools, list) else ():
        if isinstance(tool, dict):
            function = tool.get("function")
            called = function.get("name") if isinstance(function, dict) else tool.get("name")
            stage.update(repr(called).encode("utf-8", "surrogatepass"))
    return f"{goal.scope.value}\n{call.model}\n{stage.hexdigest()}"
