"""Scorers: rate a replica for a call, in [0, 1]."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from weft_gateway.model import ReplicaView, RouteRequest


@dataclass(frozen=True, slots=True)
class LeastInFlight:
    """LEAST_USED of Agentix Algorithm 2: the replica with fewest calls scores highest."""

    name: str = "least_used"

    def scores(self, request: RouteRequest, replicas: Sequence[ReplicaView]) -> Mapping[str, float]:
        """1 / (1 + calls in flight)."""
        return {r.name: 1.0 / (1 + max(0, r.in_flight)) for r in replicas}


@dataclass(frozen=True, slots=True)
class Home:
    """Algorithm 2, line 6: a program's long calls go to the replica it was assigned to.

    threshold_tokens: calls with at most this many prompt tokens have no home (line 2).
    """

    threshold_tokens: int
    name: str = "home"

    def scores(self, request: RouteRequest, replicas: Sequence[ReplicaView]) -> Mapping[str, float]:
        """Return 1 for the home of a long call, else 0."""
        home = request.program.home if request.program is not None else ""
        if request.prompt_tokens <= self.threshold_tokens:
            home = ""
        return {r.name: 1.0 if home and r.name == home else 0.0 for r in replicas}


@dataclass(frozen=True, slots=True)
class SharedPrefix:
    """Rates replicas by the tokens of a shared prefix that they save over the least used replica.
    Weighs recomputation against load, like Preble (Srivatsa et al., 2024).

    call_tokens: prompt tokens whose recomputation equals one call in flight.
    """

    call_tokens: int
    name: str = "shared_prefix"

    def scores(self, request: RouteRequest, replicas: Sequence[ReplicaView]) -> Mapping[str, float]:
        """Return tokens saved, minus the cost of the queue, as a share of the prompt."""
        if request.shared is None:
            return {r.name: 0.0 for r in replicas}
        tokens = request.shared.tokens
        calls = {r.name: max(0, r.in_flight) for r in replicas}
        worth = {name: tokens.get(name, 0) - self.call_tokens * n for name, n in calls.items()}
        fewest = min(calls.values())
        least = min(one for name, one in worth.items() if calls[name] == fewest)
        prompt = max(1, request.prompt_tokens)
        return {name: min(1.0, max(0, one - least) / prompt) for name, one in worth.items()}
