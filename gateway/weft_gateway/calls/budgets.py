"""Budgets of calls, measured when a call is sent, and what the gateway learns for them."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from hashlib import blake2b
from time import perf_counter, time
from typing import Any, Final

from weft_gateway.calls.call import PREFILL, Call
from weft_gateway.model import Outcome, ProgramKey
from weft_gateway.model.slo import CallBudget, Goal, Scope, Slos
from weft_gateway.policies.budget import budget, is_late
from weft_gateway.policies.forecast import ALL, Costs, PathLengths

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
        self._costs = Costs()

    def opened(self, call: Call) -> bool:
        """Follow the path of a program with a target. Call it when a call has opened. Returns
        whether the call begins a unit although the one before has not ended.
        """
        goal = call.program.goal
        position = _position(call)
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
        if call.endpoint is PREFILL:
            return None
        goal, own_s = call.program.goal, call.hints.deadline_s
        now_s = time()
        if goal.scope is Scope.CALL and goal.deadline_s:
            own_s = goal.deadline_s if own_s is None else own_s
        elif goal.target_s:
            found = self._of(call, goal, goal.target_s, now_s)
            if own_s is not None:
                part_s = min(found.budget_s, max(0.0, own_s - _elapsed(call)))
                return replace(found, budget_s=part_s)
            return found
        if own_s is None:
            return None
        target_s = now_s + own_s - _elapsed(call)
        return self._of(call, Goal(goal.slo, Scope.CALL, own_s), target_s, now_s)

    def closed(self, call: Call) -> None:
        """Learn the cost of a call that had a budget."""
        report = call.report
        if report is None or call.outcome is not Outcome.OK or not report.service_s:
            return
        unit = self._units.get(call.key)
        kind = ALL if unit is None else unit.kind
        self._costs.learn(
            call.model,
            call.replica,
            kind,
            report.prompt_tokens,
            report.cached_tokens,
            report.output_tokens,
            report.service_s,
        )

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

    def _of(self, call: Call, goal: Goal, target_s: float, now_s: float) -> CallBudget:
        unit = self._units.get(call.key)
        kind = ALL if unit is None else unit.kind
        remaining = 0
        if goal.scope is not Scope.CALL:
            remaining = self._lengths.remaining(kind, _position(call))
        assert call.placed is not None
        prompt = call.placed.prompt_tokens
        found = self._costs.predict(call.model, kind, prompt, _max_tokens(call.body))
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


def _position(call: Call) -> int:
    """Return the call's position on its unit's path, from 1."""
    program = call.program
    return program.path_calls - program.goal.begun_calls + 1


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
