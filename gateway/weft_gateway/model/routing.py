"""The input and output of a routing policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum

from weft_gateway.model.program import Program
from weft_gateway.model.record import record


class Intake(StrEnum):
    """The calls that a replica takes: all of them; those of programs that have it as their home,
    while it drains; or none, after that. Stored answers can be continued in all cases.
    """

    ALL = "all"
    HOMES = "homes"
    NONE = "none"


@record
class ReplicaView:
    """A snapshot of one replica. in_flight: its open calls, at least 0, as known to this gateway:
    its own calls are exact, other gateways' are as of the last round trip to the table.
    """

    name: str
    models: frozenset[str]
    healthy: bool
    in_flight: int
    intake: Intake = Intake.ALL


@record
class PromptPrefix:
    """The beginning of a prompt. marks: each one identifies the prompt up to it: the first one
    `step_tokens` tokens, each further one as many more. Prompts that share their first marks have
    the same beginning; the prompt after the last mark is not covered.
    """

    marks: tuple[int, ...]
    step_tokens: int


@record
class Shared:
    """The known copies of a prefix. tokens: by replica, the number of its tokens recently sent
    there, without tokens that should spread to more replicas.
    """

    tokens: Mapping[str, int]


@record
class ReplicaCost:
    """A call on one replica, predicted. Durations in seconds.

    cost_s: of the call alone there (HexGen-Flow, equation 2); its prefill counts uncached tokens
    only. high_s: the same with an answer that is not exceeded with 90% probability. queue_s: the
    summed costs of the replica's open calls (equation 3). wait_s: how long its batch needs for
    them. busy_s: engine time that the call takes from each call beside it. mean_s: the cost of the
    mean call there. cached_tokens: of the call's prompt.
    """

    cost_s: float
    high_s: float
    queue_s: float
    wait_s: float
    busy_s: float
    mean_s: float
    cached_tokens: int = 0

    @property
    def finish_s(self) -> float:
        """When the call will have finished, from now."""
        return self.wait_s + self.cost_s

    @property
    def finish_high_s(self) -> float:
        """When it will have finished with 90% probability, from now."""
        return self.wait_s + self.high_s


@record
class RouteRequest:
    """A call to place. prompt_tokens: estimated length. program: the local, possibly stale view of
    its row, None for an unknown program. avoid: replicas that just failed this call. ordinal:
    number of calls this gateway has placed before, for round robin. shared: the replicas that cache
    its beginning; None if not looked up or equal on all replicas. costs: of the call by replica;
    None if not predicted. budget_s: seconds that the call may take; None without a target.
    """

    model: str
    prompt_tokens: int
    program: Program | None
    replicas: tuple[ReplicaView, ...]
    avoid: frozenset[str] = frozenset()
    ordinal: int = 0
    shared: Shared | None = None
    costs: Mapping[str, ReplicaCost] | None = None
    budget_s: float | None = None


@record
class Decision:
    """The chosen replica and the reasons. replica is "" if no replica is eligible. scores: scorer
    name to replica name to score in [0, 1], to explain the choice. rejected: replica name to the
    filter that removed it. new_home: the call is sticky, and its program has no eligible home: the
    choice applies to all its long calls. homes: draining replicas that keep the call if they are
    its program's home, which only the process table knows for certain.
    """

    replica: str
    sticky: bool
    eligible: frozenset[str]
    reason: str
    scores: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    rejected: Mapping[str, str] = field(default_factory=dict)
    new_home: bool = False
    homes: frozenset[str] = frozenset()
    costs: Mapping[str, ReplicaCost] | None = None
    budget_s: float | None = None
