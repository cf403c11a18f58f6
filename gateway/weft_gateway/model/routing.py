"""The question put to a routing policy and its answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from weft_gateway.model.program import Program
from weft_gateway.model.record import record
from weft_gateway.model.replica import ReplicaView


@record
class PromptPrefix:
    """What a prompt begins with. marks: each stands for all of the prompt up to it, the first for
    the first `step_tokens` tokens, the next for as many more. Prompts that share their first marks
    begin alike; nothing is known of what follows the last one."""

    marks: tuple[int, ...]
    step_tokens: int


@record
class Shared:
    """What is known of a beginning. tokens: by replica, how many of its tokens were sent there
    lately, without those that are to be brought to further replicas."""

    tokens: Mapping[str, int]


@record
class RouteRequest:
    """One call to place. prompt_tokens: estimated length. program: the local view of its row,
    possibly stale, None for an unknown program. avoid: replicas that just failed this call.
    ordinal: how many calls this gateway has placed before, for taking turns. holder: the replica
    that stores the answer which this call continues, or "". shared: where its beginning is cached;
    None where nobody looked or there is nothing to tell."""

    model: str
    prompt_tokens: int
    program: Program | None
    replicas: tuple[ReplicaView, ...]
    avoid: frozenset[str] = frozenset()
    ordinal: int = 0
    holder: str = ""
    shared: Shared | None = None


@record
class Decision:
    """Where a call should go and why. replica is "" when nothing is eligible. scores: scorer
    name to replica name to score in [0, 1], kept to explain the choice. rejected: replica name to
    the filter that removed it. new_home: it is sticky, and its program has no home that could take
    it: the choice is for all of its long calls."""

    replica: str
    sticky: bool
    eligible: frozenset[str]
    reason: str
    scores: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    rejected: Mapping[str, str] = field(default_factory=dict)
    new_home: bool = False
