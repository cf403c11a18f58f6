"""Filters: each returns whether a replica can take a call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from weft_gateway.model import Intake, ReplicaView, RouteRequest

Filter = Callable[[RouteRequest, ReplicaView], bool]


def healthy(request: RouteRequest, replica: ReplicaView) -> bool:
    """Whether the replica has passed its last check and its last calls."""
    return replica.healthy


def serves_model(request: RouteRequest, replica: ReplicaView) -> bool:
    """Whether the replica serves the call's model. A replica with unknown models may serve any."""
    return not request.model or not replica.models or request.model in replica.models


def not_avoided(request: RouteRequest, replica: ReplicaView) -> bool:
    """Whether this call has not failed to reach the replica."""
    return replica.name not in request.avoid


def not_draining(request: RouteRequest, replica: ReplicaView) -> bool:
    """Whether the replica takes the call although it may be draining."""
    if replica.intake is Intake.ALL:
        return True
    home = "" if request.program is None else request.program.home
    return replica.intake is Intake.HOMES and home == replica.name


# By the name that explains a rejection.
FILTERS: Final[dict[str, Filter]] = {
    "healthy": healthy,
    "model": serves_model,
    "not_avoided": not_avoided,
}
