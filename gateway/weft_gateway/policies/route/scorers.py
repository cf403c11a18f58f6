"""Scorers: how well a replica fits a call, in [0, 1]."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from weft_gateway.model import ReplicaView, RouteRequest


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


@dataclass(frozen=True, slots=True)
class SharedPrefix:
    """Where other programs' prompts began alike: what going there saves over the least used
    replica, as Preble weighs recomputation against load (Srivatsa et al., 2024).

    call_tokens: prompt tokens that are worth computing again for one call in flight less.
    """

    call_tokens: int
    name: str = "shared_prefix"

    def scores(self, request: RouteRequest, replicas: Sequence[ReplicaView]) -> Mapping[str, float]:
        """Tokens saved, less what the queue costs, as a share of the prompt."""
        if request.shared is None:
            return {r.name: 0.0 for r in replicas}
        tokens = request.shared.tokens
        calls = {r.name: max(0, r.in_flight) for r in replicas}
        worth = {name: tokens.get(name, 0) - self.call_tokens * n for name, n in calls.items()}
        fewest = min(calls.values())
        least = min(one for name, one in worth.items() if calls[name] == fewest)
        prompt = max(1, request.prompt_tokens)
        return {name: min(1.0, max(0, one - least) / prompt) for name, one in worth.items()}
