"""Balancers by predicted costs, for replicas of unequal speed. Pure.

Both use `RouteRequest.costs`. Without them, all replicas are rated by their calls in flight.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from weft_gateway.model import ReplicaCost, ReplicaView, RouteRequest
from weft_gateway.policies.route.scorers import Scorer, least_used

# A program leaves its home only for a replica that meets the budget with this much to spare.
_MARGIN: Final = 1.2
MEETS: Final = "meets the budget"
EARLIEST: Final = "earliest finish"


def work(alpha: float) -> Scorer:
    """Return the scorer of HexGen-Flow, equation 4: (1 - alpha) beta / t_queue - alpha t_comp.

    t_queue + q0 replaces t_queue, so that an empty queue is defined. The paper calibrates beta once
    and does not publish it. Here, q0 is the mean call's cost, averaged over the replicas, and beta
    its square, so that both terms have the same scale. Raises ValueError for an alpha outside
    [0, 1].
    """
    if not 0 <= alpha <= 1:
        raise ValueError(f"alpha must be between 0 and 1, got {alpha}")

    def scores(request: RouteRequest, replicas: Sequence[ReplicaView]) -> Mapping[str, float]:
        costs = request.costs
        if not costs:
            return least_used(request, replicas)
        q0 = sum(costs[r.name].mean_s for r in replicas) / len(replicas) or 1.0
        beta = q0 * q0
        found = {}
        for r in replicas:
            cost = costs[r.name]
            found[r.name] = (1 - alpha) * beta / (cost.queue_s + q0) - alpha * cost.cost_s
        least, most = min(found.values()), max(found.values())
        spread = most - least
        return {name: (one - least) / spread if spread else 1.0 for name, one in found.items()}

    return scores


def soonest(request: RouteRequest, replicas: Sequence[ReplicaView]) -> Mapping[str, float]:
    """Rate replicas by rank, the best one with 1.

    First come the replicas where the call meets its budget with 90% probability: those that lose
    the least cached tokens, then those where it delays other calls least, then the slowest, so that
    fast replicas stay free. The others follow by the call's predicted finish.
    """
    costs = request.costs
    if not costs:
        return least_used(request, replicas)
    cached = max(costs[r.name].cached_tokens for r in replicas)

    def key(replica: ReplicaView) -> tuple[float, ...]:
        cost = costs[replica.name]
        if _meets(cost, request.budget_s):
            delay_s = replica.in_flight * cost.busy_s
            return 0, cached - cost.cached_tokens, delay_s, -cost.mean_s
        return 1, cost.finish_s

    keys = {replica.name: key(replica) for replica in replicas}
    return _ranked(keys)


def leaves_home(request: RouteRequest, replicas: Sequence[ReplicaView]) -> bool:
    """Whether the call would be late at the program's home, and another replica meets its budget
    with a margin of 20%.
    """
    costs, budget_s, program = request.costs, request.budget_s, request.program
    if not costs or budget_s is None or program is None or not program.home:
        return False
    names = [replica.name for replica in replicas]
    if program.home not in names or costs[program.home].finish_s <= budget_s:
        return False
    return any(
        costs[name].finish_high_s * _MARGIN <= budget_s for name in names if name != program.home
    )


def why(name: str) -> Callable[[RouteRequest, str], str]:
    """Return a function that explains a choice. name: the reason without predicted costs."""

    def reason(request: RouteRequest, chosen: str) -> str:
        if not request.costs:
            return name
        return MEETS if _meets(request.costs[chosen], request.budget_s) else EARLIEST

    return reason


def _meets(cost: ReplicaCost, budget_s: float | None) -> bool:
    return budget_s is not None and cost.finish_high_s <= budget_s


def _ranked(keys: Mapping[str, Any]) -> Mapping[str, float]:
    """Return 1 for the least key, and less for each greater one. Equal keys have equal ranks."""
    order = sorted(set(keys.values()))
    return {name: 1 - order.index(key) / len(order) for name, key in keys.items()}
