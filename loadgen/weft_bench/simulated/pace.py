"""An engine's steps in real time: each ends when the cost model says, or as soon as it can.

The engine's own clock runs `speed_up` times as fast as ours. Orders, quanta and waits are in its
seconds, so that it decides alike at every speed; what is told to the outside is in ours.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Protocol

from weft_engine.wire import CallContext, CallReport

from weft_bench.simulated.engine import Engine, Work

# Further behind than this, in our seconds, the engine's clock is put back: it is slower than its
# cost model then, and does not hurry afterwards to make up for it.
_SLIP_S: Final = 0.1
# Steps before others get their turn of the event loop.
_STEPS_A_TURN: Final = 64


class Sink(Protocol):
    """Where a call's tokens go."""

    def tokens(self, count: int) -> None:
        """So many more."""
        ...

    def ended(self, report: CallReport) -> None:
        """All tokens were given."""
        ...


@dataclass(slots=True)
class _Call:
    name: str
    sink: Sink | None


class Pace:
    """Drives an engine on the running event loop. on_report: told of every call that has left.

    behind_s: by how much the engine's clock had to be put back so far, our seconds.
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
        """The engine's clock, its seconds."""
        return (self._loop.time() - self._began - self.behind_s) * self._speed_up

    def add(self, work: Work, sink: Sink) -> str:
        """A call comes, under any name. Returns a name of its own for `abort`."""
        self._number += 1
        name = str(self._number)
        self._calls[name] = _Call(work.context.call, sink)
        now = self.now()
        if self.engine.busy and self._ends <= now:
            # What is over by now did not know of it.
            self._play(now)
        self.engine.add(replace(work, context=self._context(work.context, name)), now)
        if self._timer is None and not self.engine.busy:
            # All that come in this turn of the loop are in the same step.
            self._timer = self._loop.call_soon(self._turn)
        return name

    def abort(self, name: str) -> None:
        """The client is gone: take the call out after the step at hand. Its sink hears nothing
        more."""
        call = self._calls.get(name)
        if call is None:
            return
        # It may still end with the step at hand, and is reported either way.
        call.sink = None

        def leave() -> None:
            report = self.engine.abort(name, self.now())
            if report is not None:
                del self._calls[name]
                self._on_report(self._report(report, call.name))

        self.between_steps(leave)

    def between_steps(self, action: Callable[[], None]) -> None:
        """Do something to the engine as soon as no step is on its way."""
        if self.engine.busy:
            self._later.append(action)
        else:
            action()

    def later(self, seconds: float, action: Callable[[], None]) -> asyncio.TimerHandle:
        """After so many of the engine's seconds."""
        return self._loop.call_later(seconds / self._speed_up, action)

    def _turn(self) -> None:
        self._timer = None
        self._play(self.now())

    def _play(self, now: float) -> None:
        """Play what has happened by now, and come back when the next step will have ended."""
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
        """End the step at hand. Returns when the next one begins."""
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
        """In the engine's seconds."""
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
        """In our seconds."""
        return replace(
            report,
            call=name,
            service_s=report.service_s / self._speed_up,
            waiting_s=report.waiting_s / self._speed_up,
        )
