"""Filters: which replicas can take a call at all."""

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
    """Removes replicas of other models. One whose models are not known yet may serve any."""

    name: str = "model"

    def keeps(self, request: RouteRequest, replica: ReplicaView) -> bool:
        """Whether the replica serves the call's model, as far as is known."""
        return not request.model or not replica.models or request.model in replica.models


@dataclass(frozen=True, slots=True)
class NotAvoided:
    """Removes replicas that could not be reached for this very call."""

    name: str = "not_avoided"

    def keeps(self, request: RouteRequest, replica: ReplicaView) -> bool:
        """Whether this call has not failed there."""
        return replica.name not in request.avoid


@dataclass(frozen=True, slots=True)
class HoldsAnswer:
    """Keeps a call that continues a stored answer at the replica that stores it."""

    name: str = "holds_answer"

    def keeps(self, request: RouteRequest, replica: ReplicaView) -> bool:
        """Whether the replica stores the answer, or the call continues none."""
        return not request.holder or replica.name == request.holder
