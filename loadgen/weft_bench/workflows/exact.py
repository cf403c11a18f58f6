"""The optimal order of a small batch on one worker, in the token steps of Helium (section 5).

The paper gives this problem to a MILP solver; here it is a model for OR-tools' CP-SAT: a circuit
through all calls selects the order, and with it the prompt tokens that each call shares with the
one before it. OR-tools needs an older protobuf than engines, so that it is an extra, `weft[exact]`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from weft_gateway.workflows.costs import Worker, delay, token_steps, usage
from weft_gateway.workflows.problem import Calls

# The solver computes with integers: parts of a token step.
_PARTS: Final = 1000


@dataclass(frozen=True, slots=True)
class Solution:
    """The best order that was found. steps: its token steps. least: a proven lower bound of them.
    proven: whether no order is better.
    """

    order: tuple[int, ...]
    steps: float
    least: float
    proven: bool


def solve(calls: Calls, worker: Worker, known: Sequence[int], limit_s: float = 10.0) -> Solution:
    """Return the order with the least token steps that was found within the limit.

    known: an order to start from. limit_s: seconds of the solver. Raises ModuleNotFoundError
    without OR-tools.
    """
    from ortools.sat.python import cp_model

    count = len(calls)
    model: Any = cp_model.CpModel()
    costs = {
        (before, call): _whole(usage(calls.prefill(before, call), calls.answers[call], worker.rate))
        for call in range(count)
        for before in (None, *range(count))
        if before != call
    }
    delays = [_whole(delay(answer, worker.rate, worker.kv_tokens)) for answer in calls.answers]
    horizon = _whole(_steps(calls, worker, known)) + count
    begins = [model.new_int_var(0, horizon, "") for _ in range(count)]
    ends = [model.new_int_var(0, horizon, "") for _ in range(count)]
    arcs: list[tuple[int, int, Any]] = []
    place = {call: at for at, call in enumerate(known)}

    def arc(before: int, call: int, follows: bool) -> Any:
        used = model.new_bool_var("")
        arcs.append((before, call, used))
        model.add_hint(used, follows)
        return used

    for call in range(count):
        first = arc(count, call, place[call] == 0)
        model.add(ends[call] == begins[call] + costs[None, call]).only_enforce_if(first)
        arc(call, count, place[call] == count - 1)
        for before in range(count):
            if before != call and call not in calls.needs[before]:
                used = arc(before, call, place[call] == place[before] + 1)
                model.add(begins[call] >= ends[before]).only_enforce_if(used)
                model.add(ends[call] == begins[call] + costs[before, call]).only_enforce_if(used)
        for need in calls.needs[call]:
            model.add(begins[call] >= ends[need] + delays[need])
    model.add_circuit(arcs)
    # Implied by the circuit; they help the solver to bound the end.
    least = [min(cost for (_, to), cost in costs.items() if to == call) for call in range(count)]
    model.add_no_overlap(
        [model.new_fixed_size_interval_var(begins[call], least[call], "") for call in range(count)]
    )
    for call in range(count):
        model.add(ends[call] >= begins[call] + least[call])
    last = model.new_int_var(0, horizon, "")
    model.add_max_equality(last, ends)
    model.minimize(last)
    solver: Any = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = limit_s
    # One thread, and so the same result for the same work.
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    status = solver.solve(model)
    proven = status == cp_model.OPTIMAL
    order = tuple(known)
    if proven or status == cp_model.FEASIBLE:
        order = tuple(sorted(range(count), key=lambda call: (solver.value(ends[call]), call)))
    if _steps(calls, worker, known) < _steps(calls, worker, order):
        order = tuple(known)
    steps = _steps(calls, worker, order)
    return Solution(order, steps, min(steps, solver.best_objective_bound / _PARTS), proven)


def _steps(calls: Calls, worker: Worker, order: Sequence[int]) -> float:
    return token_steps([order], calls.answers, calls.needs, calls.prefill, [worker])


def _whole(steps: float) -> int:
    return round(steps * _PARTS)
