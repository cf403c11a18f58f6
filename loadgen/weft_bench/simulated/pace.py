"""Runs an engine's steps in real time: each ends at the cost model's time, or as soon as possible.

The engine's clock runs `speed_up` times as fast as real time. Orders, quanta and waiting times are
in engine seconds, so that decisions are the same at every speed. Reports to clients are in real
seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Protocol

from weft_engine.wire import CallContext, CallReport

from weft_bench.simulated.engine import Engine, Work

# If the engine lags by more than this, in real seconds, its clock is set back. The host is then
# slower than the cost model, and the engine must not rush to catch up.
_SLIP_S: Final = 0.1
# Steps to play before other tasks get their turn of the event loop.
_STEPS_A_TURN: Final = 64


class Sink(Protocol):
    """Receives a call's tokens."""

    def tokens(self, count: int) -> None:
        """Receive `count` more tokens."""
        ...

    def ended(self, report: CallReport) -> None:
        """Receive the report after the last token."""
        ...


@dataclass(slots=True)
class _Call:
    name: str
    sink: Sink | None


class Pace:
    """Drives an engine on the running event loop.

    on_report: called for every call that has left. behind_s: total time by which the engine's clock
    was set back, in real seconds.
    """

    def __init__(
        self, engine: Engine, speed_up: float, on_report: Callable[[CallReport], None]
    ) -> None:
        self.engine = engine
        self.behind_s = 0.0
        self._speed_up = speed_up
        self._on_report = on_report
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._calls: dict[str, _Call] = {}
        self._number = 0
        self._ends = 0.0
        self._timer: asyncio.Handle | None = None
        self._later: list[Callable[[], None]] = []

    def now(self) -> float:
        """Return the engine's clock in engine seconds."""
        return (self._loop.time() - self._began - self.behind_s) * self._speed_up

    def add(self, work: Work, sink: Sink) -> str:
        """Add a call under any name. Returns a unique name for `abort`."""
        self._number += 1
        name = str(self._number)
        self._calls[name] = _Call(work.context.call, sink)
        now = self.now()
        if self.engine.busy and self._ends <= now:
            # Steps that are over by now started without this call.
            self._play(now)
        self.engine.add(replace(work, context=self._context(work.context, name)), now)
        if self._timer is None and not self.engine.busy:
            # All calls that arrive in this turn of the loop join the same step.
            self._timer = self._loop.call_soon(self._turn)
        return name

    def abort(self, name: str) -> None:
        """Remove a call after the current step because its client disconnected.

        Its sink receives nothing more.
        """
        call = self._calls.get(name)
        if call is None:
            return
        # The call may still end with the current step. It is reported either way.
        call.sink = None

        def leave() -> None:
            report = self.engine.abort(name, self.now())
            if report is not None:
                del self._calls[name]
                self._on_report(self._report(report, call.name))

        self.between_steps(leave)

    def between_steps(self, action: Callable[[], None]) -> None:
        """Run an action on the engine at once, or after the current step."""
        if self.engine.busy:
            self._later.append(action)
        else:
            action()

    def later(self, seconds: float, action: Callable[[], None]) -> asyncio.TimerHandle:
        """Run an action after a delay in engine seconds."""
        return self._loop.call_later(seconds / self._speed_up, action)

    def _turn(self) -> None:
        self._timer = None
        self._play(self.now())

    def _play(self, now: float) -> None:
        """Play all steps up to now, and schedule the next turn for the current step's end."""
        engine = self.engine
        begin = now
        for _ in range(_STEPS_A_TURN):
            if engine.busy:
                if self._ends > now:
                    self._come_back((self._ends - now) / self._speed_up)
                    return
                begin = self._finish(now)
            ends = engine.start(begin, now)
            if ends is None:
                return
            self._ends = ends
        self._come_back(0.0)

    def _finish(self, now: float) -> float:
        """End the current step. Returns the time at which the next one begins."""
        late_s = (now - self._ends) / self._speed_up
        ends = self._ends
        if late_s > _SLIP_S:
            self.behind_s += late_s
        happened = self.engine.finish(ends)
        for name, count in happened.tokens.items():
            sink = self._calls[name].sink
            if sink is not None:
                sink.tokens(count)
        for report in happened.reports:
            call = self._calls.pop(report.call)
            told = self._report(report, call.name)
            self._on_report(told)
            if call.sink is not None:
                call.sink.ended(told)
        if self._later:
            actions, self._later = self._later, []
            for action in actions:
                action()
        return ends

    def _come_back(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, self._turn)

    def _context(self, context: CallContext, name: str) -> CallContext:
        """Return the context with times in engine seconds and the engine's name of the call."""
        scale = self._speed_up

        def scaled(value: float | None) -> float | None:
            return None if value is None else value * scale

        return replace(
            context,
            call=name,
            service_s=context.service_s * scale,
            waiting_s=context.waiting_s * scale,
            critical_path_s=context.critical_path_s * scale,
            budget_s=scaled(context.budget_s),
            cost_s=scaled(context.cost_s),
            remaining_s=scaled(context.remaining_s),
        )

    def _report(self, report: CallReport, name: str) -> CallReport:
        """Return the report with times in real seconds and the client's name of the call."""
        return replace(
            report,
            call=name,
            service_s=report.service_s / self._speed_up,
            waiting_s=report.waiting_s / self._speed_up,
        )
