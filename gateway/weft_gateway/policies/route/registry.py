"""Routers by name. Adding one is a function and a line."""

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
# A home outweighs all else.
_HOME_WEIGHT: Final = 10_000.0
# What is saved by a shared beginning has the load in it already: of a prompt of 100,000 tokens a
# hundred outweigh all that is left to say of it.
_SHARED_WEIGHT: Final = 1000.0
# About what a call of an agent has to compute: some new tokens of its prompt, and a short answer on
# a context of thousands. Twice as much splits hot documents for mere chance in the load.
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
    """The router of that name. ValueError lists the known names."""
    if name not in ROUTERS:
        raise ValueError(f"unknown balancer {name!r}; known: {', '.join(sorted(ROUTERS))}")
    return ROUTERS[name](threshold_tokens)
