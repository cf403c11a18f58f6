"""Orders by attained service over a ladder of queues (Agentix Algorithm 1, lines 8 to 31)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field

from weft_engine.orders.base import CallView, PlainOrder, QueueState
from weft_engine.queues import QueueLadder


@dataclass(frozen=True, slots=True)
class LadderOrder(PlainOrder, ABC):
    """A call enters the queue of its attained service, is demoted when its quantum is spent, and
    is promoted to the first queue when waiting / service >= beta.

    What counts as attained is the subclass's: `attained` and `waited` before the call itself.
    Raises ValueError for a beta that is not positive.
    """

    ladder: QueueLadder = field(default_factory=QueueLadder)
    beta: float = 10.0

    def __post_init__(self) -> None:
        if not self.beta > 0:
            raise ValueError(f"beta must be positive, got {self.beta}")

    @property
    def displaces(self) -> bool:
        """A waiting call of a better queue displaces a running one."""
        return True

    @property
    def margin(self) -> float | None:
        """Inside a queue nobody is displaced: two calls of one queue never trade places."""
        return None

    @property
    def moving(self) -> bool:
        """Inside a queue calls are first come, first served."""
        return False

    @abstractmethod
    def attained(self, view: CallView) -> float:
        """Service before this call, seconds."""

    @abstractmethod
    def waited(self, view: CallView) -> float:
        """Waiting before this call, seconds."""

    def enter(self, view: CallView) -> QueueState:
        """Lines 11 to 13: the queue of the attained service, with that queue's quantum."""
        queue = self.ladder.index(self.attained(view))
        return QueueState(queue, self.ladder.quantum(queue))

    def review(self, view: CallView) -> QueueState | None:
        """Lines 20 to 30: demotion, then anti-starvation, which wins."""
        # A call that has not waited since its last promotion has nothing to complain of, however
        # long its program waited before: else it could never be demoted again.
        if view.queue > 0 and view.call_waiting_s > 0 and self.starves_in(view) <= 0:
            return QueueState(0, self.ladder.quantum(0), promoted=True)
        if view.quantum_left_s <= 0 and view.queue < self.ladder.count - 1:
            return QueueState(view.queue + 1, self.ladder.quantum(view.queue + 1))
        return None

    def starves_in(self, view: CallView) -> float:
        """Lines 24 to 26, solved for the wait that is still missing."""
        if view.queue == 0:
            return math.inf
        service = self.attained(view) + view.call_service_s
        return self.beta * service - (self.waited(view) + view.call_waiting_s)

    def rank(self, view: CallView) -> float:
        """All alike."""
        return 0.0
