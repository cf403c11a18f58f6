"""Scorers: each rates replicas for a call, in [0, 1]; higher is better."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from weft_gateway.model import ReplicaView, RouteRequest

Scorer = Callable[[RouteRequest, Sequence[ReplicaView]], Mapping[str, float]]


def least_used(request: RouteRequest, replicas: Sequence[ReplicaView]) -> Mapping[str, float]:
    """LEAST_USED of Agentix Algorithm 2: 1 / (1 + calls in flight)."""
    return {r.name: 1.0 / (1 + max(0, r.in_flight)) for r in replicas}


def home(threshold_tokens: int) -> Scorer:
    """Return the scorer of Algorithm 2, line 6: 1 for the home of a long call, else 0.

    threshold_tokens: calls with at most this many prompt tokens have no home (line 2).
    """

    def scores(request: RouteRequest, replicas: Sequence[ReplicaView]) -> Mapping[str, float]:
        is_long = request.prompt_tokens > threshold_tokens
        home = request.program.home if is_long and request.program is not None else ""
        return {r.name: 1.0 if home and r.name == home else 0.0 for r in replicas}

    return scores


def shared_prefix(call_tokens: int) -> Scorer:
    """Return a scorer of the tokens of a shared prefix that a replica saves over the least used
    one, minus the cost of its queue, as a share of the prompt. It weighs recomputation against
    load, like Preble (Srivatsa et al., 2024).

    call_tokens: prompt tokens whose recomputation equals one call in flight.
    """

    def scores(request: RouteRequest, replicas: Sequence[ReplicaView]) -> Mapping[str, float]:
        if request.shared is None:
            return {r.name: 0.0 for r in replicas}
        return _worth(request.shared.tokens, request, replicas, call_tokens)

    return scores


def last_replica(threshold_tokens: int, call_tokens: int) -> Scorer:
    """Return a scorer like `shared_prefix` for calls that do not go to a home: short calls, and a
    long call that chooses the home. The replica of the program's last call counts as having cached
    the prompt up to the threshold.

    threshold_tokens: as in `home`. call_tokens: as in `shared_prefix`.
    """

    def scores(request: RouteRequest, replicas: Sequence[ReplicaView]) -> Mapping[str, float]:
        program, prompt = request.program, request.prompt_tokens
        if (
            program is None
            or not program.last_replica
            or (prompt > threshold_tokens and any(r.name == program.home for r in replicas))
        ):
            return {r.name: 0.0 for r in replicas}
        tokens = {program.last_replica: min(prompt, threshold_tokens)}
        return _worth(tokens, request, replicas, call_tokens)

    return scores


def _worth(
    tokens: Mapping[str, int],
    request: RouteRequest,
    replicas: Sequence[ReplicaView],
    call_tokens: int,
) -> Mapping[str, float]:
    """Return the tokens that each replica saves over the least used one, minus the cost of its
    queue, as a share of the prompt. tokens: cached, by replica.
    """
    calls = {r.name: max(0, r.in_flight) for r in replicas}
    worth = {name: tokens.get(name, 0) - call_tokens * n for name, n in calls.items()}
    fewest = min(calls.values())
    least = min(one for name, one in worth.items() if calls[name] == fewest)
    prompt = max(1, request.prompt_tokens)
    return {name: min(1.0, max(0, one - least) / prompt) for name, one in worth.items()}
