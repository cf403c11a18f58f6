"""A scheduling order as data: what it ranks calls by, and whether and when calls change queues."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from weft_engine.call_view import CallView, QueueState
from weft_engine.orders.ladder import QueueLadder
from weft_engine.reorder import Places, ReorderRule


def constant(view: CallView) -> float:
    """The same value for every call."""
    return 0.0


@dataclass(frozen=True, slots=True)
class Order:
    """How the waiting queue is sorted: by queue, then rank, then entry; the lowest is first.

    ladder: the queues; None for a single one. A call enters the queue of its attained service, is
    demoted when its quantum is spent, and is promoted to queue 0 when waiting / service >= beta
    (Agentix Algorithm 1, lines 8 to 31). attained, waited: service and waiting before this call.

    residents: programs are admitted to the cache as a whole (see residents.py). resident_factor:
    how long a resident may be without a call, as a multiple of the time that a prefill of the whole
    cache takes.

    paces: whether running answers limit the prompt tokens of a step (see prompt_budget.py).

    rule: makes the rule that moves waiting calls as time passes (see reorder.py); None for none.
    """

    name: str
    rank: Callable[[CallView], float] = constant
    ladder: QueueLadder | None = None
    beta: float = 10.0
    attained: Callable[[CallView], float] = constant
    waited: Callable[[CallView], float] = constant
    residents: bool = False
    resident_factor: float = 0.0
    paces: bool = True
    rule: Callable[[Places], ReorderRule] | None = None

    @property
    def preempts(self) -> bool:
        """Whether a waiting call may preempt a running one of its tenant."""
        return self.ladder is not None

    @property
    def preempts_tenants(self) -> bool:
        """Whether a waiting call may preempt a running one of a tenant above its share."""
        return self.preempts or self.residents

    def enter(self, view: CallView) -> QueueState:
        """The queue of a call that arrives (lines 11 to 13)."""
        if self.ladder is None:
            return QueueState(0, math.inf)
        queue = self.ladder.index(self.attained(view))
        return QueueState(queue, self.ladder.quantum(queue))

    def review(self, view: CallView) -> QueueState | None:
        """The new queue of a call that was served or starves, None to leave it where it is. Lines
        20 to 30: demotion, then anti-starvation, which takes precedence."""
        if self.ladder is None:
            return None
        # A call that has not waited since its last promotion does not starve, however long its
        # program waited before: otherwise it could never be demoted again.
        if view.call_waiting_s > 0 and self.starves_in(view) <= 0:
            return QueueState(0, self.ladder.quantum(0), promoted=True)
        if view.quantum_left_s <= 0 and view.queue < self.ladder.count - 1:
            return QueueState(view.queue + 1, self.ladder.quantum(view.queue + 1))
        return None

    def starves_in(self, view: CallView) -> float:
        """Seconds of further waiting after which `review` promotes the call (lines 24 to 26)."""
        if self.ladder is None or view.queue == 0:
            return math.inf
        service = self.attained(view) + view.call_service_s
        return self.beta * service - (self.waited(view) + view.call_waiting_s)
