"""A plan by ranks, as the planner makes it, as the plan of `dispatch`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from weft_gateway.workflows.commands import ANY


class Ranks(Protocol):
    """A plan over the ranks of rows."""

    @property
    def replicas(self) -> tuple[str, ...]:
        """The names of the replicas."""
        ...

    @property
    def windows(self) -> tuple[int, ...]:
        """Calls in flight for each of them."""
        ...

    def turn(self, operator: str, rank: int) -> tuple[str, int]:
        """Return the replica of an operator in a row, and its turn there. Raises LookupError for
        operators and ranks that are not planned.
        """
        ...


class Ranked:
    """Turns and replicas of a plan. first: number of the row with rank 0; rows follow in the order
    of ranks. Operators that are not planned, such as tools, prefer no replica and have the lowest
    turn.
    """

    def __init__(self, plan: Ranks, first: int = 0) -> None:
        self._plan = plan
        self._first = first
        self.windows = dict(zip(plan.replicas, plan.windows, strict=True))

    def begin(self, row: int, columns: Mapping[str, Any]) -> None:
        """The plan has all rows already."""

    def ended(self, row: int) -> None:
        """Nothing to release."""

    def turn(self, operator: str, row: int) -> float:
        """Return the turn of a call on its replica."""
        return self._look_up(operator, row)[1]

    def replica(self, operator: str, row: int) -> str:
        """Return the replica of a call."""
        return self._look_up(operator, row)[0]

    def _look_up(self, operator: str, row: int) -> tuple[str, int]:
        try:
            return self._plan.turn(operator, row - self._first)
        except LookupError:
            return ANY, 0
