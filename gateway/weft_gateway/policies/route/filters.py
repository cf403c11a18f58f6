"""Filters: why a replica cannot take a call."""

from __future__ import annotations

from typing import Final

from weft_gateway.model import Intake, ReplicaView, RouteRequest

DRAINING: Final = "draining"
_ALL: Final = Intake.ALL


def rejection(request: RouteRequest, replica: ReplicaView) -> str:
    """Return the filter that removes a replica, "" if it can take the call. A replica with unknown
    models may serve any.
    """
    if not replica.healthy:
        return "healthy"
    if request.model and replica.models and request.model not in replica.models:
        return "model"
    if replica.name in request.avoid:
        return "not_avoided"
    if replica.intake is not _ALL:
        home = "" if request.program is None else request.program.home
        if replica.intake is not Intake.HOMES or home != replica.name:
            return DRAINING
    return ""
