"""The rivals that HexGen-Flow 5.1 measures, and a reading of a router's description. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Final

from weft_engine.orders import CallView, Order, OrderOptions
from weft_gateway.model import ReplicaView, RouteRequest
from weft_gateway.policies.route.pickers import max_score
from weft_gateway.policies.route.router import Router
from weft_gateway.policies.route.scorers import least_used

from weft_bench.orders.slo_groups import SloGroups
from weft_bench.orders.token_counters import FewestTokens


def llf(options: OrderOptions) -> Order:
    """The call of the program with the least laxity first: the time until the program's target
    minus the predicted service of this call and of the later ones on its path, without a budget for
    each call.

    Both shrink alike while a call runs, and only the time left shrinks while it waits, so the
    laxity at sending, from the time of queueing, gives the order. Calls without a target use
    default_budget_s.
    """

    def laxity_s(view: CallView) -> float:
        left_s = options.default_budget_s if view.left_s is None else view.left_s
        return view.queued_s + left_s - (view.path_s or view.cost_s or 0.0)

    return Order("llf", rank=laxity_s)


def qlm(options: OrderOptions) -> Order:
    """Groups of calls with similar deadlines, first come, first served; if the predicted wait
    violates the target of a group, the group with the least remaining time first."""
    return Order("qlm", rule=partial(SloGroups, options.default_budget_s))


def vtc(options: OrderOptions) -> Order:
    """The call of the program that received the fewest weighted tokens first."""
    return Order("vtc", rule=FewestTokens)


def power_of_two(threshold_tokens: int, alpha: float) -> Router:
    """Of two random replicas, the one with fewer open calls, as in Ray. The arguments have no
    effect."""
    return Router("power_of_two", {"least_used": (least_used, 1.0)}, _better_of_two)


def _better_of_two(totals: Mapping[str, float], ordinal: int, rng: Random) -> str:
    names = list(totals)
    two = rng.sample(names, min(2, len(names)))
    return max(two, key=totals.__getitem__)


def sticky_until_saturated(threshold_tokens: int, alpha: float) -> Router:
    """Our reading of the default of llm-d's router: the replica of the program's last call, until
    more than `alpha` calls are in flight there; then the replica with the fewest. The tokens have
    no effect."""

    def kept(request: RouteRequest, replicas: Sequence[ReplicaView]) -> Mapping[str, float]:
        last = "" if request.program is None else request.program.last_replica
        return {r.name: float(r.name == last and r.in_flight <= alpha) for r in replicas}

    scorers = {"kept": (kept, 2.0), "least_used": (least_used, 1.0)}
    return Router("sticky_until_saturated", scorers, max_score)


# Balancers of virtual time, beside those of the gateway.
READINGS: Final[Mapping[str, Callable[[int, float], Router]]] = {
    "sticky_until_saturated": sticky_until_saturated
}
