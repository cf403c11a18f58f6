"""A trace for plays: the order of each program's calls, and their predictions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from weft_gateway.policies.costs import Costs, EngineCosts, Shape, StepCosts
from weft_gateway.tuning.replay.trace import Trace
from weft_gateway.tuning.shapes import CallShape, in_order


@dataclass(slots=True)
class CallPlan:
    """A call to replay. followers: numbers of the calls that wait for it, needs: how many calls it
    waits for. expected: as its router sees it. cached, cached_new: tokens on a replica that has
    served its program before, and on another one. unit: the position of its unit, which it may
    begin.
    """

    shape: CallShape
    program: str
    name: str
    model: str
    gap_s: float
    needs: int
    expected: Shape | None
    cached: int
    cached_new: int
    unit: int
    followers: list[int] = field(default_factory=list)


@dataclass(slots=True)
class UnitPlan:
    """A unit. counted: the objective includes it."""

    calls: int
    counted: bool
    alone_s: float
    deadline_s: float


@dataclass(slots=True)
class Prepared:
    """A trace as plays use it. begins: first calls of programs, with their recorded begin."""

    trace: Trace
    costs: Costs
    calls: list[CallPlan] = field(default_factory=list)
    units: list[UnitPlan] = field(default_factory=list)
    begins: list[tuple[float, int]] = field(default_factory=list)
    models: Mapping[str, frozenset[str]] = field(default_factory=dict)


def prepare(trace: Trace) -> Prepared:
    """Return a checked trace as plays use it."""
    costs = Costs()
    for replica in trace.replicas:
        steps = StepCosts(*replica.steps, together=float(replica.slots))
        costs.set_engine(replica.name, EngineCosts(steps, replica.kv_tokens))
    for call in trace.calls:
        costs.learn(
            f"{call.model:x}", call.replica, _kind(call), call.prompt, call.cached, call.output,
            call.service_s,
        )  # fmt: skip
    found = Prepared(trace, costs)
    found.models = {one.name: frozenset(f"{m:x}" for m in one.models) for one in trace.replicas}
    _add_calls(found)
    return found


def _add_calls(found: Prepared) -> None:
    programs: dict[int, list[CallShape]] = defaultdict(list)
    for call in found.trace.calls:
        programs[call.program].append(call)
    resumed, fresh = _cached_shares(found.trace.calls)
    counted = set(found.trace.counted)
    places: dict[int, int] = {}
    for program, calls in programs.items():
        base = len(found.calls)
        for at, step in enumerate(in_order(calls)):
            call = step.call
            unit = places.setdefault(call.unit, len(found.units))
            if unit == len(found.units):
                found.units.append(UnitPlan(0, call.unit in counted, 0.0, call.deadline_s))
            kind = _kind(call)
            found.units[unit].calls += 1
            share = resumed.get(kind, max(call.known, call.cached) / max(1, call.prompt))
            new = fresh.get(kind, 0.0)
            found.calls.append(
                CallPlan(
                    call,
                    f"{program:x}",
                    f"{base + at}",
                    f"{call.model:x}",
                    step.gap_s,
                    len(step.after),
                    found.costs.shape(kind, call.prompt, None),
                    call.cached if call.resumed else int(share * call.prompt),
                    int(new * call.prompt) if call.resumed else call.cached,
                    unit,
                )
            )
            for other in step.after:
                found.calls[base + other].followers.append(base + at)
            if not step.after:
                found.begins.append((call.begin_s, base + at))
    _add_alone(found)


def _add_alone(found: Prepared) -> None:
    """Set the time alone of each unit: the longest chain of its calls."""
    chains = [0.0] * len(found.calls)
    for number, call in enumerate(found.calls):
        unit = found.units[call.unit]
        chains[number] += call.shape.alone_s
        unit.alone_s = max(unit.alone_s, chains[number])
        for other in call.followers:
            if found.calls[other].unit == call.unit:
                chains[other] = max(chains[other], chains[number])


def _cached_shares(calls: Sequence[CallShape]) -> tuple[dict[str, float], dict[str, float]]:
    """Return the usual cached share of prompts by kind, of calls at replicas that had served their
    program, and of the others.
    """
    shares: tuple[dict[str, list[float]], dict[str, list[float]]]
    shares = defaultdict(list), defaultdict(list)
    for call in calls:
        if call.prompt:
            shares[not call.resumed][_kind(call)].append(call.cached / call.prompt)
    resumed, fresh = ({kind: median(one) for kind, one in each.items()} for each in shares)
    return resumed, fresh


def _kind(call: CallShape) -> str:
    return f"{call.model:x}\n{call.kind:x}"
