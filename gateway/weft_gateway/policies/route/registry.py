"""Routers by name."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Final

from weft_gateway.policies.route.by_cost import leaves_home, soonest, why, work
from weft_gateway.policies.route.pickers import in_turn, max_score
from weft_gateway.policies.route.router import LAST, Router
from weft_gateway.policies.route.scorers import home, last_replica, least_used, shared_prefix

# Entry points of further balancers. Each names a function like those of ROUTERS.
GROUP: Final = "weft.balancers"
# A home outweighs all other scores.
_HOME_WEIGHT: Final = 10_000.0
# The score of a shared prefix already includes the load: for a prompt of 100,000 tokens, a
# difference of one hundred outweighs the other scores.
_SHARED_WEIGHT: Final = 1000.0
# Approximate work of one agent call: some new prompt tokens, and a short answer on a context of
# thousands. Twice this value splits hot documents for random differences in load.
_CALL_TOKENS: Final = 512
# HexGen-Flow begins with this value and tunes it (section 4.3). Its best ones are 0.1 to 0.4
# (figure 10); with a prefix cache, ours is 0.
ALPHA: Final = 0.0
_LEAST_USED: Final = {"least_used": (least_used, 1.0)}


def _locality(threshold_tokens: int) -> Router:
    return Router(
        "least_used",
        {
            "home": (home(threshold_tokens), _HOME_WEIGHT),
            LAST: (last_replica(threshold_tokens, _CALL_TOKENS), _SHARED_WEIGHT),
            **_LEAST_USED,
        },
        max_score,
        threshold_tokens,
        (shared_prefix(_CALL_TOKENS), _SHARED_WEIGHT),
    )


def _soonest(threshold_tokens: int) -> Router:
    return Router(
        "least_used",
        {"home": (home(threshold_tokens), _HOME_WEIGHT), "soonest": (soonest, 1.0)},
        max_score,
        threshold_tokens,
        leaves=leaves_home,
        why=why("least_used"),
    )


ROUTERS: Final[dict[str, Callable[[int, float], Router]]] = {
    "locality": lambda threshold, _: _locality(threshold),
    "least_used": lambda *_: Router("least_used", _LEAST_USED, max_score),
    "round_robin": lambda *_: Router("round_robin", {}, in_turn),
    "work": lambda _, alpha: Router("work", {"work": (work(alpha), 1.0)}, max_score),
    "soonest": lambda threshold, _: _soonest(threshold),
}
# Balancers that need `RouteRequest.costs`.
BY_COST: Final = frozenset({"work", "soonest"})


def build(name: str, threshold_tokens: int, alpha: float = ALPHA) -> Router:
    """Return the router of that name. alpha: of `work`. Raises ValueError with the known names."""
    return _factory(name)(threshold_tokens, alpha)


def known(name: str) -> str:
    """Return the name of a balancer. Raises ValueError with the known names."""
    _factory(name)
    return name


def _factory(name: str) -> Callable[[int, float], Router]:
    """Return what builds a balancer: one of the gateway, or one that another package registers."""
    if name in ROUTERS:
        return ROUTERS[name]
    for found in entry_points(group=GROUP, name=name):
        factory: Callable[[int, float], Router] = found.load()
        return factory
    names = sorted({*ROUTERS, *entry_points(group=GROUP).names})
    raise ValueError(f"unknown balancer {name!r}; known: {', '.join(names)}")
