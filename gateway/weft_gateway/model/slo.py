"""Targets of programs: SLO classes, and what the process table keeps about a program's target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Final

from weft_gateway.model.record import record


class Scope(StrEnum):
    """The unit that has to end in time: the whole program, a turn (from a user's message until an
    answer without tool calls), or one call.
    """

    PROGRAM = "program"
    TURN = "turn"
    CALL = "call"


class Late(StrEnum):
    """How to treat a program whose target cannot be met at its first call."""

    SERVE = "serve"
    REFUSE = "refuse"


@record
class SloClass:
    """A class of the SLO file. deadline_s: seconds per unit of `scope`, 0 for none. attainment: the
    share of units that should meet it.
    """

    name: str
    scope: Scope = Scope.PROGRAM
    deadline_s: float = 0.0
    attainment: float = 0.95
    late: Late = Late.SERVE


@record
class Granted:
    """The class of a key, and the classes that it may use."""

    default: str
    may: frozenset[str]


@record
class Slos:
    """The classes by name, and the grants by tenant. others: the grant of all other tenants."""

    classes: Mapping[str, SloClass] = field(default_factory=dict)
    tenants: Mapping[str, Granted] = field(default_factory=dict)
    others: Granted = Granted("", frozenset())

    def of(self, tenant: str) -> Granted:
        """Return the grant of a tenant."""
        return self.tenants.get(tenant, self.others)


@record
class Goal:
    """A deadline. slo: the class, "" for a client's own deadline. deadline_s: seconds from the
    begin of the unit. begun_s: the begin of the unit in progress, Unix time; 0 before the program's
    first call. begun_calls: the program's `path_calls` at that time.
    """

    slo: str = ""
    scope: Scope = Scope.PROGRAM
    deadline_s: float = 0.0
    begun_s: float = 0.0
    begun_calls: int = 0

    @property
    def target_s(self) -> float:
        """The instant by which the unit should end, Unix time; 0 without one."""
        return self.begun_s + self.deadline_s if self.begun_s and self.deadline_s else 0.0


@record
class Ask:
    """The goal that a request asks for, NO_GOAL for none. explicit: the client asked, so it
    replaces the goal that the program has. turn: the request begins a turn.
    """

    goal: Goal
    explicit: bool = False
    turn: bool = False


NO_GOAL: Final = Goal()


@record
class CallBudget:
    """A call's part of its program's deadline, as of its sending. Durations are in seconds.

    Target:
      target_s: Unix time. left_s: until the target, at most 0 if it has passed.
      budget_s: for this call. late: the predicted path does not fit into `left_s`.
      cause: why not, by name; None if it fits.
    Cost of this call, predicted:
      cost_s: of prefill_s and answer_s; 0 if unknown. p90_s: 90th percentile, 0 if unknown.
      fit_s: the cost without learned errors. tokens, tokens_p90: of the answer.
    Path of this call and the later ones, predicted:
      remaining, remaining_p90: the later calls.
      path_s: each later call costs as much as those of this stage.
      whole_s: each later call costs as much as those at its position.
      whole_p90_s: the same, with the 90th percentiles of this call's cost and of the later calls.
    Forecast:
      kind: names of the call's model, kind and stage.
    """

    slo: str
    scope: Scope
    deadline_s: float
    target_s: float
    left_s: float
    budget_s: float
    cost_s: float
    prefill_s: float
    answer_s: float
    remaining: int
    late: bool
    path_s: float = 0.0
    whole_s: float = 0.0
    whole_p90_s: float = 0.0
    p90_s: float = 0.0
    fit_s: float = 0.0
    tokens: float = 0.0
    tokens_p90: float = 0.0
    remaining_p90: int = 0
    kind: str = ""
    cause: str | None = None
