"""The question put to a routing policy and its answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from gateway.model.program import Program
from gateway.model.record import record
from gateway.model.replica import ReplicaView


@record
class RouteRequest:
    """One call to place. prompt_tokens: estimated length. program: the local view of its row,
    possibly stale, None for an unknown program. avoid: replicas that just failed this call.
    ordinal: how many calls this gateway has placed before, for taking turns. holder: the replica
    that stores the answer which this call continues, or ""."""

    model: str
    prompt_tokens: int
    program: Program | None
    replicas: tuple[ReplicaView, ...]
    avoid: frozenset[str] = frozenset()
    ordinal: int = 0
    holder: str = ""


@record
class Decision:
    """Where a call should go and why. replica is "" when nothing is eligible. scores: scorer
    name to replica name to score in [0, 1], kept to explain the choice. rejected: replica name to
    the filter that removed it."""

    replica: str
    sticky: bool
    eligible: frozenset[str]
    reason: str
    scores: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    rejected: Mapping[str, str] = field(default_factory=dict)
