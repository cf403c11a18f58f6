"""Scorers: how well a replica fits a call, in [0, 1]."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gateway.model import ReplicaView, RouteRequest


@dataclass(frozen=True, slots=True)
class LeastInFlight:
    """LEAST_USED of Agentix Algorithm 2: fewest calls in the system scores highest."""

    name: str = "least_used"

    def scores(self, request: RouteRequest, replicas: Sequence[ReplicaView]) -> Mapping[str, float]:
        """1 / (1 + calls in flight)."""
        return {r.name: 1.0 / (1 + max(0, r.in_flight)) for r in replicas}


@dataclass(frozen=True, slots=True)
class Home:
    """Algorithm 2, line 6: a program's long calls belong to the replica it was assigned to.

    threshold_tokens: calls of at most so many prompt tokens have no home (line 2).
    """

    threshold_tokens: int
    name: str = "home"

    def scores(self, request: RouteRequest, replicas: Sequence[ReplicaView]) -> Mapping[str, float]:
        """1 for the home of a long call, 0 for all else."""
        home = request.program.home if request.program is not None else ""
        if request.prompt_tokens <= self.threshold_tokens:
            home = ""
        return {r.name: 1.0 if home and r.name == home else 0.0 for r in replicas}
