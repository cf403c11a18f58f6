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
    None if not given. cached_tokens, uncached_tokens: the result of the last prefix cache lookup of
    a waiting call. running: at least one of its sequences is in the batch. promoted: the
    anti-starvation rule put it into its queue.
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
    cached_tokens: int = 0
    uncached_tokens: int = 0
    running: bool = False
    promoted: bool = False


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


def entry_order(view: CallView, entry: int) -> int:
    """First come, first served."""
    return entry


@dataclass(frozen=True, slots=True)
class Order:
    """How the waiting queue is sorted: by queue, then rank, then tie_break; the lowest is first.

    ladder: the queues; None for a single one. A call enters the queue of its attained service, is
    demoted when its quantum is spent, and is promoted to queue 0 when waiting / service >= beta
    (Agentix Algorithm 1, lines 8 to 31). attained, waited: service and waiting before this call.
    first_queue_service_s: calls in queue 0 are promoted too, as if they had received at least this
    much service; 0: never.

    margin: how much better the rank of a waiting call must be to preempt a call of the same queue;
    None: ranks never preempt. rank_changes: service changes ranks. counts_tokens: `rank` reads
    `CallView.program_tokens`.

    cache_aware: `rank` reads the results of prefix cache lookups and counts before the queue, which
    then only decides demotion and promotion. Calls are preempted for slots only, because preempting
    one for its blocks would lose what it computed. reserve_factor: how long blocks stay reserved
    for a program between two calls, as a fraction of the time that a prefill of the whole cache
    takes.

    residents: programs are admitted to the cache as a whole (see residents.py); `reserve_factor`
    then says how long a resident may be without a call.
    """

    name: str
    rank: Callable[[CallView], float] = constant
    tie_break: Callable[[CallView, int], int] = entry_order
    ladder: QueueLadder | None = None
    beta: float = 10.0
    attained: Callable[[CallView], float] = constant
    waited: Callable[[CallView], float] = constant
    first_queue_service_s: float = 0.0
    margin: float | None = None
    rank_changes: bool = False
    counts_tokens: bool = False
    cache_aware: bool = False
    residents: bool = False
    reserve_factor: float = 0.0

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
        service = self.attained(view) + view.call_service_s
        if self.ladder is None:
            return math.inf
        if view.queue == 0:
            if view.promoted or not self.first_queue_service_s:
                return math.inf
            service = max(service, self.first_queue_service_s)
        return self.beta * service - (self.waited(view) + view.call_waiting_s)

    def max_hold_s(self, view: CallView, keep_s: float) -> float:
        """Seconds for which a call may still be deferred for blocks that are reserved for keep_s:
        the anti-starvation rule with keep_s as the least service."""
        if view.promoted:
            return 0.0
        service = max(self.attained(view) + view.call_service_s, keep_s)
        return self.beta * service - (self.waited(view) + view.call_waiting_s)
