"""A scheduling order as data: what it ranks calls by, and whether and when calls change queues."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from weft_engine.orders.ladder import QueueLadder


@dataclass(slots=True)
class CallView:
    """The view of a call that orders use. Durations are in seconds.

    program_service_s, program_waiting_s: of the program's finished calls (T_p, W_p).
    critical_path_s: the longest chain of finished calls in the program. program_arrival_s: Unix
    time. program_tokens: weighted tokens that the program received on this engine (VTC). queue,
    quantum_left_s: the call's current queue and what is left of its quantum. call_service_s,
    call_waiting_s: T_c and W_c since the call arrived or was last promoted, the current wait
    included. total_service_s: all service of the call. queued_s: the instant on the engine's clock
    at which the call would have been queued if it had waited only once. budget_s, cost_s,
    remaining_s: the caller's deadline, expected execution time and remaining work of the program;
    left_s, path_s: until the program's target when the call was queued, and the predicted service
    until then. deadline_s: from the arrival of the program to the target. None if not given.
    late: the predicted path does not fit into the time until the target any more.
    """

    program_service_s: float = 0.0
    program_waiting_s: float = 0.0
    critical_path_s: float = 0.0
    program_arrival_s: float = 0.0
    program_tokens: float = 0.0
    queue: int = 0
    quantum_left_s: float = math.inf
    call_service_s: float = 0.0
    call_waiting_s: float = 0.0
    total_service_s: float = 0.0
    queued_s: float = 0.0
    budget_s: float | None = None
    cost_s: float | None = None
    remaining_s: float | None = None
    left_s: float | None = None
    path_s: float | None = None
    deadline_s: float | None = None
    late: bool = False

    @property
    def latest_start_s(self) -> float | None:
        """The instant on the engine's clock at which the call has to continue, so that its program
        or turn meets its target if the predicted path is right and nothing waits later. It does not
        change while the call waits. None without a target."""
        if self.left_s is None:
            return None
        return self.queued_s + self.left_s - max(self.path_s or 0.0, self.total_service_s)


@dataclass(frozen=True, slots=True)
class QueueState:
    """A call's queue (0 is the best) and the rest of its quantum there, seconds. promoted: set by
    the anti-starvation rule, which resets the call's T_c and W_c."""

    queue: int
    quantum_left_s: float
    promoted: bool = False


def constant(view: CallView) -> float:
    """The same value for every call."""
    return 0.0


@dataclass(frozen=True, slots=True)
class Order:
    """How the waiting queue is sorted: by queue, then rank, then entry; the lowest is first.

    ladder: the queues; None for a single one. A call enters the queue of its attained service, is
    demoted when its quantum is spent, and is promoted to queue 0 when waiting / service >= beta
    (Agentix Algorithm 1, lines 8 to 31). attained, waited: service and waiting before this call.

    margin: how much better the rank of a waiting call must be to preempt a call of the same queue;
    None: ranks never preempt. rank_changes: service changes ranks. counts_tokens: `rank` reads
    `CallView.program_tokens`.

    residents: programs are admitted to the cache as a whole (see residents.py). resident_factor:
    how long a resident may be without a call, as a multiple of the time that a prefill of the whole
    cache takes. knows_remaining: `CallView.remaining_s` orders programs, not what was learned.

    targets: ranks follow targets, and change when a call becomes late (see late_calls.py). groups:
    calls are grouped by their SLOs (see slo_groups.py). default_left_s: time left of calls without
    a target.
    """

    name: str
    rank: Callable[[CallView], float] = constant
    ladder: QueueLadder | None = None
    beta: float = 10.0
    attained: Callable[[CallView], float] = constant
    waited: Callable[[CallView], float] = constant
    margin: float | None = None
    rank_changes: bool = False
    counts_tokens: bool = False
    residents: bool = False
    resident_factor: float = 0.0
    knows_remaining: bool = False
    targets: bool = False
    groups: bool = False
    default_left_s: float = math.inf

    @property
    def preempts(self) -> bool:
        """Whether a waiting call may preempt a running one of its tenant."""
        return self.ladder is not None or self.margin is not None

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

    def max_hold_s(self, view: CallView, keep_s: float) -> float:
        """Seconds for which a call may still be deferred: the anti-starvation rule with keep_s as
        the least service."""
        service = max(self.attained(view) + view.call_service_s, keep_s)
        return self.beta * service - (self.waited(view) + view.call_waiting_s)
