"""Scorers: each rates replicas for a call, in [0, 1]; higher is better."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from weft_gateway.model import ReplicaView, RouteRequest

Scorer = Callable[[RouteRequest, Sequence[ReplicaView]], Mapping[str, float]]


def least_used(request: RouteRequest, replicas: Sequence[ReplicaView]) -> Mapping[str, float]:
    """LEAST_USED of Agentix Algorithm 2: 1 / (1 + calls in flight)."""
    return {r.name: 1.0 / (1 + r.in_flight) for r in replicas}


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
    found = [(r.in_flight, tokens.get(r.name, 0), r.name) for r in replicas]
    # Of the least used replicas, the one with the fewest cached tokens.
    fewest, least, _ = min(found)
    prompt = request.prompt_tokens or 1
    worth = {}
    for calls, cached, name in found:
        one = cached - least - call_tokens * (calls - fewest)
        worth[name] = 0.0 if one <= 0 else 1.0 if one >= prompt else one / prompt
    return worth
