"""One play of a trace with some values: the gateway's decisions in virtual time."""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from random import Random
from typing import Any, Final

from weft_engine.orders import build_order
from weft_engine.wire import CallContext

from weft_gateway.model import (
    Closing,
    Opening,
    Outcome,
    Program,
    ProgramKey,
    ReplicaView,
    RouteRequest,
)
from weft_gateway.model.record import record
from weft_gateway.policies.budget import budget
from weft_gateway.policies.costs import cached_tokens
from weft_gateway.policies.route.registry import ALPHA, build
from weft_gateway.programs.memory import MemoryTable, at_once
from weft_gateway.tuning.replay.engine import EngineModel, Job
from weft_gateway.tuning.replay.prepared import CallPlan, Prepared
from weft_gateway.tuning.replay.trace import Objective, Values
from weft_gateway.tuning.window import p95

_US: Final = 1_000_000
_ENDS: Final = 0
_COMES: Final = 1
_BEGINS: Final = 2


@dataclass(slots=True)
class _Unit:
    """Progress of a unit. begin_s: -1 before its first call. served_s: time with an open call."""

    begin_s: float = -1.0
    end_s: float = 0.0
    open: int = 0
    opened_s: float = 0.0
    served_s: float = 0.0
    left: int = 0


@record
class _Open:
    number: int
    replica: str
    key: ProgramKey


@dataclass(slots=True)
class Play:
    """A play that can be interrupted: `run_until` continues it."""

    prepared: Prepared
    values: Values
    now: float = field(default=0.0, init=False)
    calls: int = field(default=0, init=False)

    _engines: dict[str, EngineModel] = field(default_factory=dict, init=False)
    _table: MemoryTable = field(default_factory=MemoryTable, init=False)
    _rng: Random = field(init=False)
    _router: Any = field(init=False)
    # (instant, event, tie breaker, replica or "", call or version).
    _events: list[tuple[float, int, int, str, int]] = field(default_factory=list, init=False)
    _number: int = field(default=0, init=False)
    _versions: dict[str, int] = field(default_factory=dict, init=False)
    _needs: list[int] = field(default_factory=list, init=False)
    _due: list[float] = field(default_factory=list, init=False)
    _units: list[_Unit] = field(default_factory=list, init=False)
    _open: dict[str, _Open] = field(default_factory=dict, init=False)
    # Replicas that have served each program.
    _served: dict[str, set[str]] = field(default_factory=dict, init=False)
    _counted_left: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        trace = self.prepared.trace
        order = build_order(trace.order, trace.options)
        self._engines = {one.name: EngineModel(one, order) for one in trace.replicas}
        self._versions = dict.fromkeys(self._engines, 0)
        alpha = ALPHA if self.values.alpha is None else self.values.alpha
        self._router = build(trace.balancer, trace.threshold_tokens, alpha)
        self._rng = Random(trace.seed)
        calls = self.prepared.calls
        self._needs = [call.needs for call in calls]
        self._due = [0.0] * len(calls)
        self._units = [_Unit(left=unit.calls) for unit in self.prepared.units]
        self._counted_left = sum(unit.counted for unit in self.prepared.units)
        for begin_s, number in self.prepared.begins:
            self._number += 1
            self._events.append((begin_s, _COMES, self._number, "", number))
        heapify(self._events)

    @property
    def done(self) -> bool:
        """Whether all counted units have ended."""
        return not self._counted_left

    def run_until(self, end_s: float, left: int = 0) -> None:
        """Continue until this instant, or until at most `left` counted units have not ended."""
        events = self._events
        while events and self._counted_left > left and events[0][0] <= end_s:
            self.now, what, _, name, number = heappop(events)
            if what == _COMES:
                self._come(number)
            elif number != self._versions[name]:
                continue
            elif what == _ENDS:
                self._end(name)
            else:
                self._begin(name)

    def mean_s(self) -> float:
        """Return the mean latency of the counted units that have begun, until now at least."""
        found = [
            (unit.end_s if not unit.left else self.now) - unit.begin_s
            for plan, unit in zip(self.prepared.units, self._units, strict=True)
            if plan.counted and unit.begin_s >= 0
        ]
        return sum(found) / len(found) if found else 0.0

    def score(self, objective: Objective) -> float:
        """Return the figure of the counted units that have begun. A unit in progress counts with
        its latency until now, which is its least one.
        """
        found = []
        for plan, unit in zip(self.prepared.units, self._units, strict=True):
            if not plan.counted or unit.begin_s < 0:
                continue
            latency_s = (unit.end_s if not unit.left else self.now) - unit.begin_s
            if objective is Objective.LATENCY:
                found.append(latency_s)
            elif objective is Objective.DEADLINE:
                if plan.deadline_s:
                    found.append(latency_s / plan.deadline_s)
            elif plan.alone_s:
                served_s = unit.served_s + (self.now - unit.opened_s if unit.open else 0.0)
                found.append(served_s / plan.alone_s)
        return p95(found)

    # -- the gateway ---------------------------------------------------------------------------

    def _come(self, number: int) -> None:
        now, plan, table = self.now, self.prepared.calls[number], self._table
        key = ProgramKey("", plan.program)
        unit = self._units[plan.unit]
        if unit.begin_s < 0:
            unit.begin_s = now
        if not unit.open:
            unit.opened_s = now
        unit.open += 1
        self.calls += 1
        in_flight, row, names = table.in_flight(), table.peek(key), list(self._engines)
        views = tuple(
            [
                ReplicaView(name, self.prepared.models[name], True, in_flight.get(name, 0))
                for name in names
            ]
        )
        shape, left_s, budget_s = plan.shape, 0.0, None
        if shape.deadline_s:
            left_s = unit.begin_s + shape.deadline_s - now
            budget_s = budget(left_s, shape.cost_s, shape.remaining, shape.later_s)
        costs = None
        if plan.expected is not None:
            cached = cached_tokens(row, shape.prompt, plan.expected.cached_share)
            costs = self.prepared.costs.by_replica(
                plan.model, names, plan.expected, cached, table.work()
            )
        decision = self._router.route(
            RouteRequest(
                plan.model, shape.prompt, row, views, frozenset(), self.calls, None, costs,
                budget_s,
            ),
            self._rng,
        )  # fmt: skip
        if not decision.replica:
            raise ValueError(f"no replica serves the model of call {number}")
        opened = at_once(
            table.open_call(
                Opening(
                    key,
                    plan.name,
                    "",
                    decision.replica,
                    decision.eligible,
                    decision.sticky,
                    now,
                    costs={name: int(one.cost_s * _US) for name, one in (costs or {}).items()},
                )
            )
        )
        self._open[plan.name] = _Open(number, opened.replica, key)
        self._send(plan, opened.program, opened.replica, budget_s, left_s)

    def _send(
        self,
        plan: CallPlan,
        program: Program,
        replica: str,
        budget_s: float | None,
        left_s: float,
    ) -> None:
        shape, now = plan.shape, self.now
        context = CallContext(
            plan.name,
            plan.program,
            program.service_s,
            program.waiting_s,
            program.arrival_s,
            program.critical_path_s,
        )
        if budget_s is not None:
            path_s = shape.cost_s + shape.remaining * shape.later_s
            context = CallContext(
                plan.name,
                plan.program,
                program.service_s,
                program.waiting_s,
                program.arrival_s,
                program.critical_path_s,
                budget_s,
                shape.cost_s or None,
                left_s=left_s,
                path_s=path_s or None,
                deadline_s=shape.deadline_s,
            )
        served = self._served.setdefault(plan.program, set())
        cached = plan.cached if replica in served else plan.cached_new
        served.add(replica)
        prompt = max(1, shape.prompt)
        job = Job(
            int(plan.name), plan.name, prompt, max(1, prompt - cached), max(1, shape.output), now
        )
        engine = self._engines[replica]
        ends = engine.add(job, context, now)
        if not engine.busy:
            self._schedule(replica, _BEGINS, now)
        elif ends is not None:
            self._schedule(replica, _ENDS, max(now, ends))

    def _schedule(self, replica: str, what: int, at: float) -> None:
        """Replace the next event of a replica."""
        self._versions[replica] += 1
        self._number += 1
        heappush(self._events, (at, what, self._number, replica, self._versions[replica]))

    def _begin(self, replica: str) -> None:
        ends = self._engines[replica].begin(self.now)
        if ends is not None:
            self._schedule(replica, _ENDS, ends)

    def _end(self, replica: str) -> None:
        for job in self._engines[replica].finish(self.now):
            self._close(job)
        self._schedule(replica, _BEGINS, self.now)

    def _close(self, job: Job) -> None:
        now, calls = self.now, self.prepared.calls
        found = self._open.pop(job.name)
        plan = calls[found.number]
        at_once(
            self._table.close_call(
                Closing(
                    found.key,
                    job.name,
                    now,
                    Outcome.OK,
                    now - job.started_s,
                    job.started_s - job.arrived_s,
                    job.prompt,
                    job.prompt - job.uncached,
                    job.output,
                )
            )
        )
        unit = self._units[plan.unit]
        unit.open -= 1
        unit.left -= 1
        if not unit.open:
            unit.served_s += now - unit.opened_s
        if not unit.left:
            unit.end_s = now
            self._counted_left -= self.prepared.units[plan.unit].counted
        for number in plan.followers:
            self._needs[number] -= 1
            self._due[number] = max(self._due[number], now + calls[number].gap_s)
            if not self._needs[number]:
                self._number += 1
                heappush(self._events, (self._due[number], _COMES, self._number, "", number))
