"""Filters: remove replicas that cannot take a call."""

from __future__ import annotations

from dataclasses import dataclass

from weft_gateway.model import ReplicaView, RouteRequest


@dataclass(frozen=True, slots=True)
class Healthy:
    """Removes replicas that failed their last check or their last call."""

    name: str = "healthy"

    def keeps(self, request: RouteRequest, replica: ReplicaView) -> bool:
        """Whether the replica is up."""
        return replica.healthy


@dataclass(frozen=True, slots=True)
class ServesModel:
    """Removes replicas of other models. A replica with unknown models may serve any."""

    name: str = "model"

    def keeps(self, request: RouteRequest, replica: ReplicaView) -> bool:
        """Whether the replica serves the call's model, or its models are unknown."""
        return not request.model or not replica.models or request.model in replica.models


@dataclass(frozen=True, slots=True)
class NotAvoided:
    """Removes replicas that this call failed to reach."""

    name: str = "not_avoided"

    def keeps(self, request: RouteRequest, replica: ReplicaView) -> bool:
        """Whether this call has not failed there."""
        return replica.name not in request.avoid


@dataclass(frozen=True, slots=True)
class HoldsAnswer:
    """Keeps a call that continues a stored answer on the replica that stores it."""

    name: str = "holds_answer"

    def keeps(self, request: RouteRequest, replica: ReplicaView) -> bool:
        """Whether the replica stores the answer, or the call continues none."""
        return not request.holder or replica.name == request.holder
