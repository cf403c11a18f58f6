"""The journal: shapes of the last calls and of the programs that ended, for windows and replays."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from time import perf_counter, time
from typing import Final

from weft_gateway.calls.call import Call
from weft_gateway.calls.kinds import stage_of
from weft_gateway.calls.observers import CallObserver
from weft_gateway.model import Outcome, ProgramKey
from weft_gateway.model.slo import Scope
from weft_gateway.policies.costs import Costs
from weft_gateway.tuning.shapes import CallShape, UnitShape, opaque, unit_of

# Limits: programs in progress, calls of one unit, contexts of one program, calls of ended units.
_MAX_PROGRAMS: Final = 4096
_MAX_CALLS: Final = 512
_MAX_CONTEXTS: Final = 32
_MAX_ENDED: Final = 8192


@dataclass(slots=True)
class _Program:
    """A program in progress. open: its calls, with whether its replica had served it before.
    replicas: that have served it. contexts: lengths of what it sent and received. calls: ended ones
    of its unit. dropped: the unit has too many calls.
    """

    open: dict[str, bool] = field(default_factory=dict)
    replicas: set[str] = field(default_factory=set)
    contexts: deque[int] = field(default_factory=lambda: deque(maxlen=_MAX_CONTEXTS))
    calls: list[CallShape] = field(default_factory=list)
    unit: int = 0
    last_s: float = 0.0
    dropped: bool = False


class Journal(CallObserver):
    """Observes answered calls of engines that report them. costs: for the time alone. quiet_s: a
    unit without a call for so much time has ended: many clients do not report ends. clock: Unix
    time.
    """

    def __init__(
        self, costs: Costs, quiet_s: float, clock: Callable[[], float] = lambda: time()
    ) -> None:
        self._costs = costs
        self._quiet_s = quiet_s
        self._clock = clock
        self._programs: OrderedDict[int, _Program] = OrderedDict()
        # With the instant at which the end was noticed.
        self._ended: deque[tuple[float, UnitShape]] = deque()
        self._calls = 0

    def opened(self, call: Call) -> None:
        """Note whether the call's replica has served the program before."""
        program = self._program(opaque(*call.key))
        program.open[call.id] = call.replica in program.replicas
        program.replicas.add(call.replica)

    def closed(self, call: Call) -> None:
        """Record the shape of an answered call."""
        name = opaque(*call.key)
        program = self._program(name)
        resumed = program.open.pop(call.id, False)
        report, now_s = call.report, self._clock()
        program.last_s = now_s
        if report is None or call.outcome is not Outcome.OK or call.superseded:
            return
        prompt, output, cached = report.prompt_tokens, report.output_tokens, report.cached_tokens
        known = max([cached, *[tokens for tokens in program.contexts if tokens <= prompt]])
        program.contexts.append(prompt + output)
        found, unit = call.budget, 0
        if found is not None and found.scope is Scope.TURN:
            unit = opaque(*call.key, f"{call.program.goal.begun_s}")
        elif found is not None and found.scope is Scope.CALL:
            unit = opaque(call.id)
        later_s = 0.0
        if found is not None and found.remaining:
            later_s = max(0.0, found.path_s - found.cost_s) / found.remaining
        if not call.stage:
            call.stage = stage_of(call.body)
        self._add(
            program,
            CallShape(
                name,
                unit or name,
                min(now_s, now_s - (perf_counter() - call.begun)),
                now_s,
                prompt,
                cached,
                known,
                output,
                opaque(call.hints.kind or "", call.hints.stage or call.stage),
                opaque(call.model),
                call.replica,
                resumed,
                self._costs.alone_s(call.model, prompt, known, output),
                report.service_s,
                *(
                    ()
                    if found is None
                    else (found.deadline_s, found.cost_s, found.remaining, later_s)
                ),
            ),
        )

    def program_ended(self, key: ProgramKey) -> None:
        """A program has ended."""
        program = self._programs.pop(opaque(*key), None)
        if program is not None:
            self._end(program)

    def sweep(self) -> None:
        """End the units without a call for a while."""
        before_s = self._clock() - self._quiet_s
        for name, program in list(self._programs.items()):
            if program.open:
                continue
            if program.last_s >= before_s:
                # Later ones were used later.
                break
            del self._programs[name]
            self._end(program)

    def since(self, begin_s: float) -> list[UnitShape]:
        """Return the units whose end was noticed at this instant or later, the earliest first."""
        return [unit for noticed_s, unit in self._ended if noticed_s >= begin_s]

    def running(self) -> Iterable[CallShape]:
        """Yield the ended calls of units in progress."""
        for program in self._programs.values():
            yield from program.calls

    def counts(self) -> dict[str, int]:
        """Return the numbers of programs in progress, of ended units and of their calls."""
        return {"running": len(self._programs), "units": len(self._ended), "calls": self._calls}

    def _program(self, name: int) -> _Program:
        program = self._programs.get(name)
        if program is None:
            program = self._programs[name] = _Program()
            if len(self._programs) > _MAX_PROGRAMS:
                self._programs.popitem(last=False)
        else:
            self._programs.move_to_end(name)
        return program

    def _add(self, program: _Program, call: CallShape) -> None:
        if program.unit != call.unit:
            self._end(program)
            program.unit = call.unit
        if len(program.calls) >= _MAX_CALLS:
            program.dropped = True
            program.calls.clear()
        if not program.dropped:
            program.calls.append(call)

    def _end(self, program: _Program) -> None:
        """Move the unit in progress to the ended ones."""
        calls, program.calls, program.dropped = program.calls, [], False
        if not calls:
            return
        self._ended.append((self._clock(), unit_of(calls)))
        self._calls += len(calls)
        while self._calls > _MAX_ENDED:
            self._calls -= len(self._ended.popleft()[1].calls)
