"""The rivals that HexGen-Flow 5.1 measures. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from random import Random

from weft_engine.orders import CallView, Order, OrderOptions
from weft_gateway.policies.route.filters import FILTERS
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
    return Router("power_of_two", FILTERS, {"least_used": (least_used, 1.0)}, _better_of_two)


def _better_of_two(totals: Mapping[str, float], ordinal: int, rng: Random) -> str:
    names = list(totals)
    two = rng.sample(names, min(2, len(names)))
    return max(two, key=totals.__getitem__)
