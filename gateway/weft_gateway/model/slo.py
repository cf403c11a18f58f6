"""Targets of programs: SLO classes, and what the process table keeps about a program's target."""

from __future__ import annotations

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
    share of units that should meet it. weight: relative to other classes.
    """

    name: str
    scope: Scope = Scope.PROGRAM
    deadline_s: float = 0.0
    attainment: float = 0.95
    weight: float = 1.0
    late: Late = Late.SERVE


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
    """The goal that a request asks for. explicit: the client asked, so it replaces the goal that
    the program has. turn: the request begins a turn.
    """

    goal: Goal
    explicit: bool = False
    turn: bool = False


NO_GOAL: Final = Goal()
