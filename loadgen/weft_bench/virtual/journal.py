"""Shapes of simulated calls, as the gateway's journal records them, and the trace that its tuner
would replay.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from typing import Any, Final

from weft_engine.orders import OrderOptions
from weft_gateway.engine.described import engine_costs
from weft_gateway.model.slo import CallBudget
from weft_gateway.policies.costs import Costs
from weft_gateway.tuning.process import replay
from weft_gateway.tuning.replay.trace import Limits, Objective, ReplicaShape, Trace, Values
from weft_gateway.tuning.shapes import CallShape, UnitShape, opaque, unit_of

from weft_bench.virtual.front import LOCALITY_THRESHOLD_TOKENS
from weft_bench.virtual.records import CallRecord, Simulation
from weft_bench.virtual.targets import MODEL

# As in `weft_gateway.tuning.journal`.
_MAX_CONTEXTS: Final = 32
# The gateway's limit is for idle machines.
_WITHIN_S: Final = 1000.0


def trace_of(
    found: Simulation,
    balancer: str,
    order: str,
    current: Values,
    objective: Objective,
) -> Trace:
    """Return the trace of a simulation's programs, the latest first if they have too many calls.

    Raises ValueError if a replica has not fitted its step costs.
    """
    replicas = [_replica(name, dict(speed)) for name, speed in found.speeds.items()]
    calls: list[CallShape] = []
    counted: list[int] = []
    for unit in reversed(units(found)):
        if counted and len(calls) + len(unit.calls) > Limits().calls:
            break
        calls += unit.calls
        counted.append(unit.unit)
    return Trace(
        calls,
        counted,
        replicas,
        balancer,
        LOCALITY_THRESHOLD_TOKENS,
        order,
        OrderOptions().model_dump(),
        current,
        objective,
    )


def tuned_alpha(
    found: Simulation, balancer: str, order: str, alpha: float
) -> tuple[float, float, int]:
    """Return the alpha that the gateway's tuner chooses after a simulation with `alpha`, by the
    paper's rule: the least replayed P95 of the latency. Also the CPU seconds of the replay's
    process, and its calls over all candidates.

    Raises ReplayError if the replay fails.
    """
    trace = trace_of(found, balancer, order, Values(alpha=alpha), Objective.LATENCY)
    result = asyncio.run(replay(trace, Limits(within_s=_WITHIN_S)))
    return result.best.alpha or 0.0, result.cpu_s, result.calls


def units(found: Simulation) -> list[UnitShape]:
    """Return the programs of a simulation as shapes, by end."""
    costs = Costs()
    for name, speed in found.speeds.items():
        costs.set_engine(name, engine_costs({"engines": [dict(speed)]}))
    for call in found.calls:
        budget = found.budgets.get(_name(call))
        costs.learn(
            MODEL,
            call.replica,
            "" if budget is None else budget.kind,
            call.prompt_tokens,
            call.cached_tokens,
            call.output_tokens,
            call.service_s,
        )
    contexts: dict[str, deque[int]] = defaultdict(lambda: deque(maxlen=_MAX_CONTEXTS))
    served: dict[str, set[str]] = defaultdict(set)
    resumed = set()
    for call in found.calls:
        if call.replica in served[call.program]:
            resumed.add(id(call))
        served[call.program].add(call.replica)
    calls: dict[str, list[CallShape]] = defaultdict(list)
    for call in sorted(found.calls, key=lambda one: one.end_s):
        sent = contexts[call.program]
        known = max([call.cached_tokens, *(one for one in sent if one <= call.prompt_tokens)])
        sent.append(call.prompt_tokens + call.output_tokens)
        budget = found.budgets.get(_name(call))
        alone_s = costs.alone_s(MODEL, call.prompt_tokens, known, call.output_tokens)
        shape = _shape(call, budget, known, id(call) in resumed, alone_s)
        calls[call.program].append(shape)
    return sorted(map(unit_of, calls.values()), key=lambda unit: unit.end_s)


def _name(call: CallRecord) -> str:
    return f"{call.program}/{call.number}"


def _shape(
    call: CallRecord, budget: CallBudget | None, known: int, resumed: bool, alone_s: float
) -> CallShape:
    program = opaque(call.program)
    ahead: tuple[Any, ...] = ()
    if budget is not None:
        later_s = 0.0
        if budget.remaining:
            later_s = max(0.0, budget.path_s - budget.cost_s) / budget.remaining
        ahead = (budget.deadline_s, budget.cost_s, budget.remaining, later_s)
    return CallShape(
        program,
        program,
        call.arrival_s,
        call.end_s,
        call.prompt_tokens,
        call.cached_tokens,
        known,
        call.output_tokens,
        opaque("" if budget is None else budget.kind),
        opaque(MODEL),
        call.replica,
        resumed,
        alone_s,
        call.service_s,
        *ahead,
    )


def _replica(name: str, speed: dict[str, Any]) -> ReplicaShape:
    costs = engine_costs({"engines": [speed]})
    if costs is None:
        raise ValueError(f"{name} has not fitted its step costs")
    steps = costs.steps
    return ReplicaShape(
        name,
        (
            steps.step_s,
            steps.weights_s,
            steps.prefill_token_s,
            steps.decode_s,
            steps.context_token_s,
        ),
        int(steps.together),
        int(speed["step_tokens"]),
        costs.kv_tokens,
        (opaque(MODEL),),
    )
