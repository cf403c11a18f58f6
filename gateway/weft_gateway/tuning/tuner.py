"""The tuner of one gateway: compares windows, replays, applies better values, and rolls back those
that turned out worse. It acts while its gateway leads.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import StrEnum
from time import time
from typing import Final

from weft_gateway.programs.table import TableUnavailable
from weft_gateway.tuning.engines import Engines, EngineSet, EnginesUnknown
from weft_gateway.tuning.journal import Journal
from weft_gateway.tuning.process import Failure, ReplayError
from weft_gateway.tuning.replay.trace import Found, Limits, Objective, Trace, Values
from weft_gateway.tuning.shapes import CallShape, UnitShape
from weft_gateway.tuning.triggers import Rule
from weft_gateway.tuning.values import SharedValues, ValuesChanging
from weft_gateway.tuning.window import Summary

log = logging.getLogger(__name__)

_TICK_S: Final = 1.0
_KEPT_WINDOWS: Final = 10
# A window without enough programs is extended to at most this multiple of its length.
_LONGEST: Final = 36
# Units with a deadline that the objective of deadlines needs.
_LEAST_DEADLINES: Final = 30


class Action(StrEnum):
    """The decision at the end of a window."""

    NONE = "none"
    KEPT = "kept"
    SWITCHED = "switched"
    ROLLED_BACK = "rolled back"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision with its reason. at_s: Unix time. p: of the test, 1 without one. gain: predicted,
    as a fraction. cpu_s: processor time of the replay.
    """

    at_s: float
    action: Action
    reason: str
    values: Values
    p: float = 1.0
    gain: float = 0.0
    cpu_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Window:
    """A window that has ended. length_s: seconds. triggered: it is worse than the one before."""

    begin_s: float
    length_s: float
    summary: Summary
    p: float
    triggered: bool


@dataclass(frozen=True, slots=True)
class _Trial:
    """A change that the next window judges. before: the values; window: the one that caused it."""

    before: Values
    window: Summary


@dataclass(frozen=True, slots=True)
class Balancing:
    """The gateway's settings of the balancer."""

    balancer: str
    threshold_tokens: int
    alpha: float


class Events:
    """Receives events for metrics. This one ignores them."""

    def window(self, triggered: bool) -> None:
        """A window has ended."""

    def decided(self, decision: Decision) -> None:
        """A decision was made."""

    def failed(self, failure: Failure) -> None:
        """A tuning failed."""


@dataclass(slots=True, eq=False)
class Tuner:
    """Decides about the values. replay: runs a replay, as `process.replay`. clock: Unix time.

    failing: the reason of the last tuning's failure, "" if it succeeded. windows, decision: the
    last ones.
    """

    rule: Rule
    journal: Journal
    values: SharedValues
    engines: Engines
    balancing: Balancing
    replay: Callable[[Trace, Limits], Awaitable[Found]]
    events: Events = field(default_factory=Events)
    limits: Limits = field(default_factory=Limits)
    clock: Callable[[], float] = field(default=lambda: time())
    failing: str = field(default="", init=False)
    decision: Decision | None = field(default=None, init=False)
    windows: deque[Window] = field(default_factory=lambda: deque(maxlen=_KEPT_WINDOWS), init=False)
    _begin_s: float = field(default=0.0, init=False)
    _before: Summary | None = field(default=None, init=False)
    _trial: _Trial | None = field(default=None, init=False)

    async def run(self) -> None:
        """Tune until cancelled."""
        while True:
            await asyncio.sleep(_TICK_S)
            await self.tick()

    async def tick(self) -> None:
        """Look whether the window has ended."""
        now = self.clock()
        self.journal.sweep()
        if not self.values.leads:
            self._begin_s, self._before, self._trial = 0.0, None, None
            return
        if not self._begin_s:
            self._begin_s = now
        length_s = now - self._begin_s
        if length_s < self.rule.window_s:
            return
        units = self.journal.since(self._begin_s)
        new = self.rule.summary(units)
        if self.rule.complete(new):
            await self._ended(new, units, length_s)
        elif length_s >= _LONGEST * self.rule.window_s:
            # The load has gone. A later window is not compared with an earlier load.
            self._before, self._trial = None, None
        else:
            return
        self._begin_s = now

    async def _ended(self, new: Summary, units: list[UnitShape], length_s: float) -> None:
        """Decide at the end of a window."""
        before, trial = self._before, self._trial
        self._before, self._trial = new, None
        triggered, p = (False, 1.0) if before is None else self.rule.triggers(new, before)
        self.windows.append(Window(self._begin_s, length_s, new, p, triggered))
        self.events.window(triggered)
        if trial is not None:
            await self._judge(trial, new)
        elif triggered or self.failing or (before is None and self.rule.at_first):
            # A tuning that failed is repeated.
            await self._tune(new, units, p)
        else:
            reason = "no window before" if before is None else "not significantly worse"
            self._decide(Decision(self.clock(), Action.NONE, reason, self.values.values, p))

    async def _judge(self, trial: _Trial, new: Summary) -> None:
        """Keep a change, or take it back if the window after it is worse."""
        if not self.rule.worse(new, trial.window):
            text = f"{_shown(trial.window)} before the change, {_shown(new)} after it"
            self._decide(Decision(self.clock(), Action.KEPT, text, self.values.values))
            return
        text = f"{_shown(new)} after the change, {_shown(trial.window)} before it"
        if await self._apply(trial.before):
            # The window before is that of other values.
            self._before = None
            self._decide(Decision(self.clock(), Action.ROLLED_BACK, text, trial.before))

    async def _tune(self, new: Summary, units: list[UnitShape], p: float) -> None:
        try:
            engines = await self.engines.read()
        except EnginesUnknown as error:
            self._fail(str(error), p, Failure.ENGINES)
            return
        current = self._current()
        if not current.known():
            text = "nothing to tune: the balancer is not `work`"
            self._decide(Decision(self.clock(), Action.NONE, text, current, p))
            return
        trace = self._trace(engines, current, units)
        try:
            found = await self.replay(trace, self.limits)
        except ReplayError as error:
            self._fail(str(error), p, error.failure)
            return
        except OSError as error:
            self._fail(f"no process for the replay: {error}", p, Failure.CRASH)
            return
        if not self.values.leads:
            # Another gateway tunes now.
            return
        self.failing = ""
        gain, cpu_s = found.gain, found.cpu_s
        if gain <= 0 or gain < self.rule.gain or found.best == current:
            text = f"the best values improve the replay by {gain:.1%}"
            self._decide(Decision(self.clock(), Action.NONE, text, current, p, gain, cpu_s))
        elif await self._apply(found.best):
            self._trial = _Trial(current, new)
            text = f"P95 of the {trace.objective}, replayed: {found.now:.3g} to {found.score:.3g}"
            decision = Decision(self.clock(), Action.SWITCHED, text, found.best, p, gain, cpu_s)
            self._decide(decision)

    def _current(self) -> Values:
        """Return the values in use that can be tuned."""
        alpha = self.values.values.alpha
        if alpha is None:
            alpha = self.balancing.alpha
        return Values(alpha if self.balancing.balancer == "work" else None)

    def _trace(self, engines: EngineSet, current: Values, units: list[UnitShape]) -> Trace:
        """Return the replay of a window: its units, the latest first if they are too many, and the
        calls of units in progress.
        """
        calls: list[CallShape] = []
        counted: list[int] = []
        for unit in reversed(units):
            if counted and len(calls) + len(unit.calls) > self.limits.calls:
                break
            calls += unit.calls
            counted.append(unit.unit)
        room = max(0, self.limits.calls - len(calls))
        calls += list(self.journal.running())[:room]
        names = {one.name for one in engines.replicas}
        calls = [call for call in calls if call.replica in names]
        kept = {call.unit for call in calls}
        deadlines = sum(unit.deadline_s > 0 for unit in units)
        if self.rule.latency:
            objective = Objective.LATENCY
        elif deadlines >= _LEAST_DEADLINES:
            objective = Objective.DEADLINE
        else:
            objective = Objective.SLOWDOWN
        return Trace(
            calls,
            [unit for unit in counted if unit in kept],
            engines.replicas,
            self.balancing.balancer,
            self.balancing.threshold_tokens,
            engines.order,
            engines.options,
            current,
            objective,
        )

    async def _apply(self, values: Values) -> bool:
        """Use values in all gateways. Returns whether it succeeded."""
        try:
            await self.values.change(values.known())
        except (TableUnavailable, ValuesChanging) as error:
            self._fail(f"the values cannot be stored: {error}", 1.0, Failure.STORE)
            return False
        return True

    def _decide(self, decision: Decision) -> None:
        self.decision = decision
        self.events.decided(decision)
        if decision.action is not Action.NONE:
            log.info("tuning: %s: %s", decision.action, decision.reason)

    def _fail(self, reason: str, p: float, failure: Failure) -> None:
        """A tuning failed: the values stay."""
        self.failing = reason
        self.events.failed(failure)
        log.error("tuning failed, the values stay: %s", reason)
        self._decide(Decision(self.clock(), Action.FAILED, reason, self.values.values, p))


def _shown(window: Summary) -> str:
    return f"mean {window.mean:.3g} of {window.count}"
