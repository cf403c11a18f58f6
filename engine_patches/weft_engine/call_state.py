"""The service and waiting time of one call, updated by events. Pure: callers pass the time.

A call may have several sequences (`n` above 1, several prompts). It waits while one of them is
queued and none runs. Its service is the duration of the steps in which at least one of them was
scheduled; each step counts once. A sequence that runs is scheduled in almost every step, so a call
is charged by a clock and not step by step.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from math import inf

from weft_engine.call_view import CallView, QueueState
from weft_engine.wire import CallContext, CallReport

# A call's queue or place, its rank in the engine's order, and its tie breaker. The lowest is first.
Rank = tuple[int, float, int]


@dataclass(slots=True)
class ServiceClock:
    """The duration of all steps so far, seconds."""

    seconds: float = 0.0


@dataclass(slots=True)
class CallState:
    """The totals of a call so far. Instants are seconds on one monotonic clock.

    rank: the sort key. level: of its program, under an order with residents. late: its latest start
    has passed. clock: of the engine. corrected_step: the number of the last step that was handled
    by `correct`. spends_at: when its quantum ends on the clock, if it runs until then.
    memory_wait_s, memory_tokens, programs_ahead, and from loaded_tokens on: as in CallReport.
    deferred_since: when the current wait for memory began.
    """

    context: CallContext
    policy: str
    rank: Rank = (0, 0.0, 0)
    clock: ServiceClock = field(default_factory=ServiceClock)
    queue: int = 0
    queue_path: list[int] = field(default_factory=list)
    waiting_s: float = 0.0
    call_waiting_s: float = 0.0
    preemptions: int = 0
    displaced: int = 0
    waiting: set[str] = field(default_factory=set)
    running: set[str] = field(default_factory=set)
    waiting_since: float | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    recomputed_tokens: int = 0
    blocks_swapped_out: int = 0
    blocks_swapped_in: int = 0
    level: int = 0
    late: bool = False
    corrected_step: int = 0
    spends_at: float = inf
    memory_wait_s: float = 0.0
    memory_tokens: int = 0
    programs_ahead: int = 0
    deferred_since: float | None = None
    loaded_tokens: int = 0
    evicted_tokens: int = 0
    evicted_by: str = ""
    evicted_s: float = 0.0
    emptied_s: float = 0.0
    hints: list[str] = field(default_factory=list)
    # Service while the call did not run, less the clock when it began to run; service at the last
    # promotion; service at which the quantum is used up.
    _service_s: float = 0.0
    _promoted_at_s: float = 0.0
    _quantum_s: float = 0.0
    _charged: bool = False

    @property
    def service_s(self) -> float:
        """Its service, seconds."""
        return self._service_s + self.clock.seconds if self._charged else self._service_s

    @property
    def call_service_s(self) -> float:
        """Its service since it arrived or was last promoted."""
        return self.service_s - self._promoted_at_s

    @property
    def quantum_left_s(self) -> float:
        """What is left of its quantum."""
        return self._quantum_s - self.service_s

    @property
    def charged(self) -> bool:
        """Whether the clock charges it: a sequence of it runs."""
        return self._charged

    @property
    def alive(self) -> bool:
        """Whether a sequence of the call is in the engine."""
        return bool(self.waiting or self.running)

    def stand(self, standing: QueueState) -> None:
        """Move the call to another queue."""
        self.queue = standing.queue
        self._quantum_s = self.service_s + standing.quantum_left_s
        self.queue_path.append(standing.queue)
        if standing.promoted:
            # Algorithm 1, line 29: only T_c and W_c of the call are reset.
            self._promoted_at_s = self.service_s
            self.call_waiting_s = 0.0

    def enqueue(self, sequence: str, now: float) -> None:
        """A sequence entered the waiting queue, new or preempted."""
        self.running.discard(sequence)
        self.waiting.add(sequence)
        self._settle(now)

    def start(self, sequence: str, now: float) -> None:
        """A sequence was scheduled."""
        self.waiting.discard(sequence)
        self.running.add(sequence)
        self._settle(now)

    def leave(self, sequence: str, now: float) -> None:
        """A sequence finished or was aborted."""
        self.waiting.discard(sequence)
        self.running.discard(sequence)
        self._settle(now)

    def correct(self, tokens: Container[str], duration_s: float) -> None:
        """A step has run, and the clock with it. Charge the call if it does not run any more but
        was in the step; do not charge it if it runs but was not. tokens: the step's sequences."""
        served = any(name in tokens for name in (*self.running, *self.waiting))
        if served != self._charged:
            self._service_s += duration_s if served else -duration_s

    def defer(self, now: float, tokens: int, ahead: int) -> None:
        """The call waits for memory. tokens: its context. ahead: programs before it."""
        if self.waiting_since is None or self.deferred_since is not None:
            return
        self.deferred_since = now
        if not self.memory_tokens:
            self.memory_tokens, self.programs_ahead = tokens, ahead

    def resume(self, now: float) -> None:
        """The call does not wait for memory any more."""
        if self.deferred_since is not None:
            self.memory_wait_s += max(0.0, now - self.deferred_since)
            self.deferred_since = None

    def add_hints(self, hints: Iterable[str]) -> None:
        """Record the outcomes of hints; equal outcomes of several sequences once."""
        self.hints.extend(hint for hint in hints if hint not in self.hints)

    def view(self, now: float) -> CallView:
        """The call as an order sees it."""
        pending = 0.0 if self.waiting_since is None else max(0.0, now - self.waiting_since)
        context = self.context
        return CallView(
            program_service_s=context.service_s,
            program_waiting_s=context.waiting_s,
            critical_path_s=context.critical_path_s,
            program_arrival_s=context.arrival_s,
            queue=self.queue,
            quantum_left_s=self.quantum_left_s,
            call_service_s=self.call_service_s,
            call_waiting_s=self.call_waiting_s + pending,
            total_service_s=self.service_s,
            queued_s=now - pending - self.waiting_s,
            budget_s=context.budget_s,
            cost_s=context.cost_s,
            left_s=context.left_s,
            path_s=context.path_s,
            deadline_s=context.deadline_s,
            late=self.late,
        )

    def report(self) -> CallReport:
        """The report with the totals so far."""
        return CallReport(
            call=self.context.call,
            service_s=round(self.service_s, 6),
            waiting_s=round(self.waiting_s, 6),
            preemptions=self.preemptions,
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self.cached_tokens,
            output_tokens=self.output_tokens,
            queue_path=tuple(self.queue_path),
            policy=self.policy,
            finished=not self.alive,
            recomputed_tokens=self.recomputed_tokens,
            blocks_swapped_out=self.blocks_swapped_out,
            blocks_swapped_in=self.blocks_swapped_in,
            hints=tuple(self.hints),
            memory_wait_s=round(self.memory_wait_s, 6),
            memory_tokens=self.memory_tokens,
            programs_ahead=self.programs_ahead,
            loaded_tokens=self.loaded_tokens,
            evicted_tokens=self.evicted_tokens,
            evicted_by=self.evicted_by,
            evicted_s=round(self.evicted_s, 3),
            emptied_s=round(self.emptied_s, 3),
        )

    def settle_wait(self, now: float) -> None:
        """Add the current wait to the totals; the call continues to wait."""
        if self.waiting_since is not None:
            waited = max(0.0, now - self.waiting_since)
            self.waiting_s += waited
            self.call_waiting_s += waited
            self.waiting_since = now

    def _settle(self, now: float) -> None:
        if bool(self.running) != self._charged:
            self._charged = not self._charged
            self._service_s += -self.clock.seconds if self._charged else self.clock.seconds
        waits = bool(self.waiting) and not self.running
        if waits and self.waiting_since is None:
            self.waiting_since = now
        elif not waits and self.waiting_since is not None:
            self.settle_wait(now)
            self.waiting_since = None
            self.resume(now)
