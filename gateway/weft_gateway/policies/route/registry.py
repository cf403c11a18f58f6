"""Routers by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from weft_gateway.policies.route.filters import Healthy, HoldsAnswer, NotAvoided, ServesModel
from weft_gateway.policies.route.pickers import InTurn, MaxScore
from weft_gateway.policies.route.protocols import Filter
from weft_gateway.policies.route.router import Router
from weft_gateway.policies.route.scorers import Home, LeastInFlight, SharedPrefix

__all__ = ["ROUTERS", "Router", "build"]

_FILTERS: Final[tuple[Filter, ...]] = (Healthy(), ServesModel(), NotAvoided(), HoldsAnswer())
# A home outweighs all other scores.
_HOME_WEIGHT: Final = 10_000.0
# The score of a shared prefix already includes the load: for a prompt of 100,000 tokens, a
# difference of one hundred outweighs the other scores.
_SHARED_WEIGHT: Final = 1000.0
# Approximate work of one agent call: some new prompt tokens, and a short answer on a context of
# thousands. Twice this value splits hot documents for random differences in load.
_CALL_TOKENS: Final = 512


def _locality(threshold_tokens: int) -> Router:
    scorers = ((Home(threshold_tokens), _HOME_WEIGHT), (LeastInFlight(), 1.0))
    return Router(
        "least_used",
        _FILTERS,
        scorers,
        MaxScore(),
        threshold_tokens,
        (SharedPrefix(_CALL_TOKENS), _SHARED_WEIGHT),
    )


ROUTERS: Final[dict[str, Callable[[int], Router]]] = {
    "locality": _locality,
    "least_used": lambda _: Router("least_used", _FILTERS, ((LeastInFlight(), 1.0),), MaxScore()),
    "round_robin": lambda _: Router("round_robin", _FILTERS, (), InTurn()),
}


def build(name: str, threshold_tokens: int) -> Router:
    """Return the router of that name. Raises ValueError with the known names."""
    if name not in ROUTERS:
        raise ValueError(f"unknown balancer {name!r}; known: {', '.join(sorted(ROUTERS))}")
    return ROUTERS[name](threshold_tokens)
